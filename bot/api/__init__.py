"""Serve the REST API, the agents' check-ins and the health checks over HTTP."""
