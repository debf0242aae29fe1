"""Judge whether a checkpoint is good enough to terminate."""
