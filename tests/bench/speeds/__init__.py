"""The aims for speed: what is measured, and the table of it."""
