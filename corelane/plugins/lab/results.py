"""Check that each item has one result, like the idle service's, and score it against known ones. Pure."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from corelane.plugins.lab.schema import ResultCheck
from corelane.plugins.lab.senders import Reply
from corelane.plugins.lab.workload import Workload

#: Numbers of two results are alike if they differ by no more: batches of other shapes add up in another order.
NEAR = 0.02


class ResultJudge:
    """Compares results; one that was scored is not scored again."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._is_scored = workload.is_scored and workload.has_known
        self._scores: dict[tuple[int, Any], tuple[float, float]] = {}

    def judge(self, places: Sequence[int], reply: Reply) -> ResultCheck:
        """Return what is wrong with a reply. A failed reply has no results: it was counted as a failure."""
        idle = self._workload.idle
        if reply.outcome != "ok":
            return ResultCheck(checked=0, differ_from_idle=0 if idle else None)
        counts = Counter(given.place for given in reply.results)
        found = [(places[given.place], given.output) for given in reply.results if 0 <= given.place < len(places)]
        check = ResultCheck(
            checked=len(found),
            lost=sum(counts[index] == 0 for index in range(len(places))),
            twice=sum(count - 1 for count in counts.values()),
        )
        if idle:
            differs = (place in idle and not alike(idle[place].output, output) for place, output in found)
            check.differ_from_idle = sum(differs)
        if self._is_scored and found:
            scores = [self._score(place, output) for place, output in found]
            check.exact, check.f1 = (100 * statistics.fmean(each) for each in zip(*scores, strict=True))
        return check

    def _score(self, place: int, output: Any) -> tuple[float, float]:
        if (place, output) not in self._scores:
            known = self._workload.asked[place].known
            self._scores[place, output] = self._workload.bench.score(known, output)
        return self._scores[place, output]


def alike(one: Any, other: Any) -> bool:
    """Return whether two outputs are the same but for rounding: of each fraction in them, not of whole numbers."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=NEAR, abs_tol=NEAR)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other)


def add_up(parts: Iterable[ResultCheck]) -> ResultCheck:
    """Sum several checks; means are weighted by the number of checked results."""
    parts = list(parts)
    differ = [part.differ_from_idle for part in parts if part.differ_from_idle is not None]
    total = ResultCheck(
        checked=sum(part.checked for part in parts),
        lost=sum(part.lost for part in parts),
        twice=sum(part.twice for part in parts),
        differ_from_idle=sum(differ) if differ else None,
    )
    scored = [part for part in parts if part.exact is not None]
    if scored:
        weights = [part.checked for part in scored]
        total.exact = statistics.fmean([part.exact or 0.0 for part in scored], weights)
        total.f1 = statistics.fmean([part.f1 or 0.0 for part in scored], weights)
    return total
