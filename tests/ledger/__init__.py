"""The ledger on SQLite and on PostgreSQL."""
