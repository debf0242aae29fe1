"""Who may approve what, and what an approval covers."""
