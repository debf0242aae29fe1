"""Events as text, and the hash chain."""
