"""Does any mutant that an older suite kills survive the suite of this commit? `make mutants OLD=COMMIT` says so."""
