"""Read and write what the jobs of sessions have done, and where replacements resume."""
