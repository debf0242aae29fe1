"""Notice that the ledger is older than its records, and go on with it once operators accept it."""
