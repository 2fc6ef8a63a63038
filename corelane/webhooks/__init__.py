"""Webhooks without the store.

``protocol`` makes and signs payloads and judges replies, ``addresses`` decides what may be reached, ``post`` makes one
attempt within its time. ``fetch`` reads and writes the inputs and outputs of jobs at addresses that are checked alike.
"""

from corelane.webhooks.addresses import check_receiver, check_reference

__all__ = ["check_receiver", "check_reference"]
