"""Read and settle what budgets count."""
