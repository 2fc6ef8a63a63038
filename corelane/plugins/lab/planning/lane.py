"""The lane of the simulated service: what waits, and what a core claims of it, by the rules of the real one. Pure.

One owner and one version, as `store/lua/claims.lua` has them: small jobs go first, oldest first, up to eight tokens for
each token of the larger ones; larger jobs share by tokens.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from corelane.domain.dispatch import BESIDE_TOKENS, LEAST_TOKENS, SMALL_TOKENS, cut_slices
from corelane.plugins.lab.planning.profile import Limits

#: What small jobs are charged beside larger ones, as a share: `SMALL_WEIGHT` of claims.lua.
SMALL_WEIGHT = 8

#: An item: the tokens of its windows.
Windows = Sequence[int]


@dataclass(slots=True)
class SimulatedJob:
    """A job of the simulation, and its times in seconds; it was due at ``at_s``."""

    number: int
    at_s: float
    items: Sequence[Windows]
    left: int = 0
    #: When it waited in its lane, when the first batch with it began, when its last answers were committed.
    queued_s: float = 0.0
    began_s: float | None = None
    ended_s: float | None = None


@dataclass(slots=True)
class Slice:
    """A run of items of one job: the first, and how many; ``done`` counts those answered."""

    job: SimulatedJob
    first: int
    count: int
    tokens: int
    is_small: bool
    done: int = 0


@dataclass(slots=True)
class Lane:
    """The work that no core has claimed."""

    limits: Limits
    tokens: int = 0
    jobs: int = 0
    _small: deque[Slice] = field(default_factory=deque)
    _larger: dict[int, deque[Slice]] = field(default_factory=dict)
    _served: dict[int, float] = field(default_factory=dict)
    _small_served: float | None = None

    def put(self, job: SimulatedJob) -> int:
        """Let a job wait; return how many slices it has."""
        costs = [max(LEAST_TOKENS, sum(windows)) for windows in job.items]
        cut = list(cut_slices(costs, self.limits.slice_items, self.limits.slice_tokens))
        is_small = len(cut) == 1 and cut[0][2] <= SMALL_TOKENS
        slices = [Slice(job, first, count, tokens, is_small) for first, count, tokens in cut]
        self.tokens += sum(costs)
        self.jobs += 1
        if is_small:
            self._small.append(slices[0])
        else:
            self._served[job.number] = min(self._served.values(), default=0.0)
            self._larger[job.number] = deque(slices)
        return len(slices)

    def claim(self, room: int, spare: int, *, met_small: int, met_larger: bool) -> list[Slice]:
        """Take slices into the room there is, at least one; up to ``spare`` of a kind that the core holds none of.

        ``met_small`` are the tokens of small jobs that the core holds.
        """
        taken: list[Slice] = []
        tokens = small_tokens = 0
        while tokens < spare and len(taken) < self.limits.claim_refs:
            is_full = tokens >= room
            may_small = not is_full or met_small + small_tokens < BESIDE_TOKENS
            chosen = self._take(may_small=may_small, may_larger=not is_full or not met_larger)
            if chosen is None:
                break
            taken.append(chosen)
            tokens += chosen.tokens
            if chosen.is_small:
                small_tokens += chosen.tokens
            else:
                met_larger = True
        self.tokens -= tokens
        return taken

    def _take(self, *, may_small: bool, may_larger: bool) -> Slice | None:
        level = min(self._served.values(), default=None)
        if not self._small:
            self._small_served = None
        elif level is not None and self._small_served is None:
            self._small_served = level
        small_first = level is None or (self._small_served or 0.0) <= level
        if may_small and self._small and (small_first or not may_larger):
            chosen = self._small.popleft()
            if level is not None:
                self._small_served = (self._small_served or 0.0) + chosen.tokens / SMALL_WEIGHT
            self.jobs -= 1
            return chosen
        if may_larger and self._larger:
            number = min(self._served, key=lambda job: (self._served[job], job))
            slices = self._larger[number]
            chosen = slices.popleft()
            if len(self._served) > 1 or self._small:
                self._served[number] += chosen.tokens
            if not slices:
                del self._larger[number], self._served[number]
                self.jobs -= 1
            return chosen
        return None
