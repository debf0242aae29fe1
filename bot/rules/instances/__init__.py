"""Verdicts about instances: health, failover, cleanup, recovery, power."""
