"""Whether a checkpoint is good enough to terminate."""
