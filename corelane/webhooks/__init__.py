"""Webhooks without the store: their protocol, the addresses that they may reach, and one attempt."""

from corelane.webhooks.addresses import check_receiver

__all__ = ["check_receiver"]
