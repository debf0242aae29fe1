"""Connections and transactions on SQLite and PostgreSQL."""
