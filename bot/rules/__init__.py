"""Judge facts with pure functions: no I/O, no clock, no framework; one file per rule."""
