"""Memory, throughput and run time of a workload."""
