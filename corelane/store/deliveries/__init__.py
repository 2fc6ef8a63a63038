"""Webhook deliveries in the store: those that are due, their attempts, and the log of them."""
