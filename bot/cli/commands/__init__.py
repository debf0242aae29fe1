"""Commands that speak the REST API."""
