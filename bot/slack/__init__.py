"""The Slack interface: read what people type and click, hand commands to services, show the ledger's state."""
