"""A month of the whole product on a clock that jumps: five clouds, forty sessions a day, and a table of faults."""
