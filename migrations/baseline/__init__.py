"""The schema that every ledger starts with, frozen: it uses no model, so it stays the same when a model changes."""
