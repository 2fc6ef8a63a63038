"""Webhooks without the store.

``protocol`` makes and signs payloads and judges replies, ``addresses`` decides what may be reached, ``post`` makes one
attempt within its time.
"""

from corelane.webhooks.addresses import check_receiver

__all__ = ["check_receiver"]
