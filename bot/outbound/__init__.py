"""Make the calls that leave this process for a user: guarded HTTP, checkpoint stores, SSH probes."""
