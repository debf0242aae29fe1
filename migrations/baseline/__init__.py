"""Create the schema that every ledger starts with.

It is frozen: it uses no model, so it stays the same when a model changes.
"""
