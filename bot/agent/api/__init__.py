"""The agent's API over TLS: chat, files, commands, status and logs, for callers with the session's token."""
