"""`kill -9` of the real process at every await of the functions in which a step can be half done."""
