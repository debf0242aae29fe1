"""The Slack door: guard, messages, dialogs, and the whole of it against the practice workspace over HTTP."""
