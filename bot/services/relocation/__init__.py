"""Move a run from one machine to another in verified steps."""
