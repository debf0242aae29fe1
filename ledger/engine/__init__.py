"""Open connections and transactions on SQLite and PostgreSQL."""
