"""How commands reach the service and the machines."""
