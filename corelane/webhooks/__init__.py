"""Webhooks without the store: their protocol, the addresses that they may reach, and one attempt."""
