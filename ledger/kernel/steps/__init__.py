"""Name the steps of what takes several: each is stored when it is done."""
