"""Judge instances: health, failover, cleanup, recovery, power."""
