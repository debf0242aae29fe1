"""Connect commands to the service, over HTTP or in this process."""
