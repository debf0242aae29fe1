"""Pin what is deployed."""
