"""The Web API methods of the Slack stand-in."""
