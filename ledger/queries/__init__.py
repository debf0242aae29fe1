"""Reads of the ledger, one file per subject."""
