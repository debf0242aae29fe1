"""What the service does when clouds, processes and people misbehave."""
