"""Define values without I/O: ids, money, actors, jobs, grants, proofs, states."""
