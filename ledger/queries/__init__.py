"""Read the ledger, one file per subject."""
