"""How commands reach the service: over HTTP or in this process."""
