"""Write the ledger: moves, claims, locks, events, inbox, outbox and entries."""
