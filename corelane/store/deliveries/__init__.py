"""Webhook deliveries in the store: what is due, what was posted, and the log of it."""
