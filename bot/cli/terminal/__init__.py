"""Print tables and sentences to a terminal."""
