"""Serve the Web API methods of the Slack stand-in."""
