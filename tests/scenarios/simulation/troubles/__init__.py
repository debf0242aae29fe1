"""Troubles in which waiting costs little: what they are, how they come, and the judge of what was lost in them."""
