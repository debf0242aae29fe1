"""Size memory, throughput and run time of a workload."""
