"""What the items of a core cost, by version and class, told with each heartbeat for forecasts (``domain.estimate``)."""

from collections import deque
from collections.abc import Collection, Mapping

from corelane.domain.dispatch import cost_class
from workers.core.observer import CoreBatch, CoreObserver, Heartbeat, TokenizedSlices, Trip
from workers.core.pending import PendingSlice

#: Lone questions are a measure until so many costs wait for the next heartbeat: a core answers more than it needs.
ENOUGH_COSTS = 64

#: Reports of what items cost that are kept for the next heartbeat.
MOST_COSTS = 10_000

#: Microseconds in a second.
US = 1_000_000

#: What items cost: their version and class, how many they are, their estimated tokens, tokens, windows, core
#: microseconds.
ItemCosts = tuple[str, str, int, int, int, int, int]


class CostBook(CoreObserver):
    """Shares the core time of each job among its slices as they are answered, by their tokens."""

    def __init__(self) -> None:
        #: What was found out since the last heartbeat.
        self.costs: deque[ItemCosts] = deque(maxlen=MOST_COSTS)
        #: Core seconds spent on jobs, but for those of answered slices.
        self._spent: dict[str, float] = {}

    def committed(self, trip: Trip) -> None:
        """Forget jobs that are over here."""
        if not trip.request.jobs:
            self._spent.clear()
        self.dropped([*trip.reply.closed, *(each.part.ref.job for each in trip.request.parts.found)])

    def tokenized(self, tokenized: TokenizedSlices) -> None:
        """Share what tokenizing took."""
        self._share(tokenized.tokens, tokenized.core_s)

    def batch_finished(self, batch: CoreBatch) -> None:
        """Share what a batch took, and note what the slices cost that it answered."""
        self._share(batch.readers, batch.read_core_s)
        self._share(batch.tokens, batch.core_s - batch.read_core_s)
        measures: dict[str, list[tuple[PendingSlice, str, int]]] = {}
        for pending, outcome in batch.slices:
            its = measures.setdefault(pending.ref.job, [])
            windows = [result["windows"] for result in outcome.results]
            if all(windows) and (its_class := self._class_of(pending)):
                its.append((pending, its_class, sum(windows)))
        for job, its in measures.items():
            a_token = US * self._spent.pop(job, 0.0) / max(1, sum(pending.tokens for pending, *_ in its))
            for pending, its_class, read in its:
                count = len(pending.ids)
                sums = count, pending.estimate * count, pending.tokens, read, int(a_token * pending.tokens)
                self.costs.append((pending.version, its_class, *sums))

    def dropped(self, jobs: Collection[str]) -> None:
        """Forget jobs."""
        for job in jobs:
            self._spent.pop(job, None)

    def beats(self, heartbeat: Heartbeat) -> None:
        """Tell what came since the last heartbeat, summed by version and class; what is told and not kept is lost."""
        sums: dict[tuple[str, str], list[int]] = {}
        while self.costs:
            version, its_class, *added = self.costs.popleft()
            before = sums.get((version, its_class), [0] * len(added))
            sums[version, its_class] = [a + b for a, b in zip(before, added, strict=True)]
        heartbeat.costs = [(version, its_class, each) for (version, its_class), each in sums.items()]

    def _share(self, tokens: Mapping[str, int], seconds: float) -> None:
        a_token = seconds / max(1, sum(tokens.values()))
        for job, its_tokens in tokens.items():
            self._spent[job] = self._spent.get(job, 0.0) + its_tokens * a_token

    def _class_of(self, pending: PendingSlice) -> str:
        """Return the class of a slice; empty if it is no measure: it was tried before, or other cores read along."""
        ref, count = pending.ref, len(pending.ids)
        is_wanted = count > 1 or ref.first or len(self.costs) < ENOUGH_COSTS
        if ref.attempt > 1 or pending.is_shared or pending.slice is None or not is_wanted:
            return ""
        return cost_class(ref.first, pending.slice.ref.tokens, [context for _, _, context in pending.slice.items])
