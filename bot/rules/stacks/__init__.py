"""Name the software stacks that a machine can install, each pinned to versions that work together."""
