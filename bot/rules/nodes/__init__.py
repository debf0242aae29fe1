"""Judge what check-ins of the agent say."""
