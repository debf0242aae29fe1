"""The Slack door: takes what people type and click, hands commands to services, and shows what the ledger says."""
