"""Slices that a core has claimed but not yet answered."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from corelane.domain.dispatch import BESIDE_TOKENS, SMALL_TOKENS, Ref
from corelane.domain.jobs import DEFAULT_TASK
from corelane.engine.task import Result
from corelane.store.dispatch import ClaimedSlice

#: Identifies a pending slice: its lease and its place in the claim.
Key = tuple[str, str]

#: A charge that is wrong by more than this is corrected while its slice is pending, a smaller error at the commit.
CORRECT_TOKENS = 1024


@dataclass(slots=True)
class PendingSlice:
    """A claimed slice; ``results`` fills up in any order.

    ``ref`` carries the tokens found in the items that were tokenized, plus the estimate for the ``unread`` others.
    ``charged`` are the tokens that the store has charged, ``tokens`` those of the windows.
    """

    lease: str
    ref: Ref
    version: str
    ids: Sequence[str | None]
    unread: int
    estimate: int
    charged: int
    found: int = 0
    tokens: int = 0
    results: dict[int, Result] = field(default_factory=dict)
    #: The name of its task.
    task: str = DEFAULT_TASK

    @classmethod
    def of(cls, lease: str, claimed: ClaimedSlice) -> "PendingSlice":
        """Return a claimed slice of which nothing was read yet."""
        ref, ids = claimed.ref, [item[0] for item in claimed.items]
        estimate = ref.tokens // max(ref.count, 1)
        return cls(lease, ref, claimed.version, ids, len(ids), estimate, ref.tokens, task=claimed.options.task)

    @property
    def key(self) -> Key:
        """Return the key that identifies this slice among all pending slices."""
        return self.lease, self.ref.key

    def charge(self, charged: int, tokens: int) -> None:
        """Replace the estimate of one item by its cost, once it is tokenized."""
        self.unread, self.found, self.tokens = self.unread - 1, self.found + charged, self.tokens + tokens
        self.ref = replace(self.ref, tokens=self.found + self.unread * self.estimate)


class PendingSlices(dict[Key, PendingSlice]):
    """All that a core has in progress."""

    @property
    def jobs(self) -> list[str]:
        """Return the jobs that have items in progress."""
        return list(dict.fromkeys(pending.ref.job for pending in self.values()))

    @property
    def versions(self) -> list[str]:
        """Return the versions that have items in progress."""
        return list(dict.fromkeys(pending.version for pending in self.values()))

    @property
    def met(self) -> list[str]:
        """Return the lines of larger slices, and the lanes of which this core has a batch's worth of small slices.

        While larger slices are pending too, fewer tokens of a lane count as a batch's worth.
        """
        small: Counter[str] = Counter()
        met: dict[str, None] = {}
        for pending in self.values():
            ref = pending.ref
            if ref.tokens <= SMALL_TOKENS:
                small[ref.lane] += ref.tokens
            else:
                met[ref.line] = None
        enough = BESIDE_TOKENS if met else SMALL_TOKENS
        return [*met, *(lane for lane, tokens in small.items() if tokens >= enough)]

    def corrections(self) -> list[tuple[str, Ref]]:
        """Return refs whose charge is far from their cost, by lease; others are corrected when committed."""
        found = []
        for pending in self.values():
            if abs(pending.ref.tokens - pending.charged) > CORRECT_TOKENS:
                pending.charged = pending.ref.tokens
                found.append((pending.lease, pending.ref))
        return found
