"""What leaves this process on a user's behalf: egress guard, checkpoint stores, SSH probes."""
