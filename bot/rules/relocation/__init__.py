"""Decide how a run moves from one machine to another: its steps, what its agents are asked, and what people read."""
