"""What the jobs of sessions have done, and where replacements resume."""
