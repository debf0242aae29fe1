"""Submit, quote, expire and send reminders of requests."""
