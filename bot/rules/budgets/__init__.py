"""What a budget still allows."""
