"""Programs that are copied into a process node and run there, with the standard library alone."""
