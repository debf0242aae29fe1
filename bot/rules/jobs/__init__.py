"""Describe what somebody asks for, and read it from what the ledger stores."""
