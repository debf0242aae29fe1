"""Webhook subscriptions and deliveries."""
