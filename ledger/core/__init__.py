"""Writers: moves, claims, locks, events, inbox, outbox and entries."""
