"""Webhook deliveries in the store: due deliveries, their attempts, and their log."""
