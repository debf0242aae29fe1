"""Run the jobs: every replica runs all of them, and claims decide which replica does the work."""
