"""Judge what a budget still allows."""
