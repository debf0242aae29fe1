"""Keep the schema of the ledger and its steps. `migrations.run` is how the application applies them."""
