"""What check-ins of the agent say."""
