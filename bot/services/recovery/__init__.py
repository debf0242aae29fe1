"""Notice that the ledger is older than its records, and continue with it once operators accept it."""
