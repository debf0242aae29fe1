"""Write events as text, and hash them into a chain."""
