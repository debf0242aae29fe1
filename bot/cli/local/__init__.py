"""Commands about this machine: serve, doctor, settings, schema, docs."""
