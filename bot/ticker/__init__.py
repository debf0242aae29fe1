"""The ticker: every replica ticks, the claim decides who works."""
