"""Run the life of an instance: launch, readiness, health, failover, power, termination, orphans, reconciliation."""
