"""Read the journal, follow its events, check invariants and collect metrics."""
