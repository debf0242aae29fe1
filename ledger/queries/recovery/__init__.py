"""Read how old the ledger is, and note that it is older than its records."""
