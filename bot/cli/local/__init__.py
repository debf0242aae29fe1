"""Commands about this machine: serve, doctor, config, db, docs."""
