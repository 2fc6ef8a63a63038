"""Webhooks, without the store: an event's bytes and signature, where it may be posted, one attempt, what follows.

``events`` makes the payload and signs it, ``addresses`` says what may be reached, ``post`` makes one attempt within its
time, ``retries`` judges it and says when to try again.
"""

from corelane.webhooks.addresses import check_address

__all__ = ["check_address"]
