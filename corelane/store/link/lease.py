"""Leases: one process at a time may do something for all, until its lease lapses or is released.

Each holder gets a fence, a number that only grows. It distinguishes the steps of the present holder from those of an
earlier one.
"""

from dataclasses import dataclass

from corelane.store.link.library import Command
from corelane.store.link.link import call


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease, and how long it lasts unless extended. Each command is one atomic step, for either link."""

    key: str
    ttl_ms: int

    def take(self, holder: str) -> Command:
        """Take the lease, or extend it; the reply is the holder's fence, or 0 if another process holds it."""
        return call("lease", key=self.key, holder=holder, ttl_ms=self.ttl_ms)

    def release(self, holder: str) -> Command:
        """Release the lease if this holder has it; the reply is always 0."""
        return call("lease", key=self.key, holder=holder, ttl_ms=0)
