"""The rules: pure functions from facts to verdicts. No I/O, no clock, no framework; one file per rule."""
