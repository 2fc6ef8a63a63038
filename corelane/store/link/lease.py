"""Leases: the right of one process to do something for all, until a time unless it is extended.

Each holder gets a number that only grows, the fence, by which a step of an earlier holder is told from one of the
present holder.
"""

from dataclasses import dataclass

from corelane.store.link.library import Command
from corelane.store.link.link import call


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease and how long it lasts unless it is extended. Its commands are one atomic step each, for either link."""

    key: str
    ttl_ms: int

    def take(self, holder: str) -> Command:
        """Take the lease, or extend it; the reply is the holder's fence, or 0 if another holds it."""
        return call("lease", key=self.key, holder=holder, ttl_ms=self.ttl_ms)

    def release(self, holder: str) -> Command:
        """End the lease if it is this holder's; the reply is always 0."""
        return call("lease", key=self.key, holder=holder, ttl_ms=0)
