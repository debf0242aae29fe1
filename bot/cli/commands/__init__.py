"""Commands that call the REST API."""
