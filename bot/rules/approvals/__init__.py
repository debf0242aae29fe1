"""Judge who may approve what, and what an approval covers."""
