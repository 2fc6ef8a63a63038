"""Estimate the core time of a job, from the recent costs of its model's items. Pure.

A core knows the items of a slice by their estimated tokens; so does the API. So slices are put into *classes*, by the
same rule on both sides (``dispatch.cost_class``): how many items are read together, the script of the first one, the
estimated tokens of an item. Cores add up the real size and time of items, by version and class (``CostSums``). From
these sums ``CostRates`` estimates the tokens and the core seconds of other items. The estimate for a class with few
items is drawn towards similar classes, and their estimate towards the whole version. Before any item was read, the cost
comes from passes: those that warmed the model up, or else those of its compile (``RowCost``). How passes differ by
length, and by the number of items read together, also serves for the classes without work.

More items, or longer ones, never cost less. The estimate for two lots of one class together is the sum of their
estimates, if their items have the same mean length.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from corelane.domain.dispatch import LENGTHS, ONE
from corelane.domain.item_costs import CostClass, CostSums, RowCost

#: From this class of length on, a text's tokens show the ratio of its script. Shorter items are charged a minimum.
TELLING = 2

#: An item takes a core as long as this many tokens, in addition to its own.
ITEM_TOKENS = 32.0

#: Similar classes count as much as this many windows of the class itself; and for tokens, as this many tokens.
PRIOR_WINDOWS, PRIOR_TOKENS = 4.0, 2000.0

#: PRIOR_WINDOWS if passes show how similar classes differ: a process takes up to four times as long for its first item.
PRIOR_WINDOWS_BY_PASSES = 16.0

#: Core seconds of recent work that count as much as all earlier work.
PRIOR_PACE_S = 0.2

#: An estimate is called sure once each of its classes has seen this number of windows.
SURE_WINDOWS = 50

NOTHING = CostSums()


@dataclass(slots=True)
class Lot:
    """Items of one class whose cost is estimated: their number, their estimated tokens and their windows."""

    items: int = 0
    estimated: int = 0
    windows: int = 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of a job before it is submitted.

    ``core_s`` is None while no item and no pass of its version was measured.

    ``known`` is the share of its estimated tokens in classes of which enough windows were read.
    """

    items: int
    windows: int
    tokens: int
    core_s: float | None
    known: float


class CostRates:
    """The recent cost of one version's items, by class."""

    def __init__(
        self,
        sums: Mapping[CostClass, CostSums] | None = None,
        recent: Mapping[CostClass, CostSums] | None = None,
        rows: Sequence[RowCost] = (),
    ) -> None:
        """``recent`` holds the items, tokens and core seconds of the last moments, ``rows`` the times of passes."""
        self._sums = dict(sums or {})
        self._recent = dict(recent or {})
        self._rows = rows
        self._over_parts: dict[tuple[str | None, str | None, int | None], CostSums] = {}
        self._curves: dict[str, CostCurve] = {}

    @cached_property
    def whole(self) -> CostSums:
        """The sums over all classes."""
        return sum(self._sums.values(), NOTHING)

    @cached_property
    def pace(self) -> float:
        """The core seconds of recent work, divided by what the same work took before; close to 1 after little work.

        Machines are shared, so all their work is slower at times. So work of all classes counts.
        """
        work = [(each, sums) for each, sums in self._recent.items() if sums.items > 0]
        before = sum(sums.items * self._curve(each.together).at(sums.tokens / sums.items) for each, sums in work)
        return (sum(sums.core_s for _, sums in work) + PRIOR_PACE_S) / (before + PRIOR_PACE_S)

    def token_ratio(self, script: str, length: int) -> float:
        """Return the ratio of tokens to estimated tokens, for items of a script and class of length."""
        whole = _ratio(self.whole, 1.0)
        of_script = _ratio(self._over(script=script), whole)
        return _ratio(self._over(script=script, length=length), of_script)

    def text_ratio(self, script: str) -> float:
        """Return the ratio of tokens to estimated tokens for texts of a script, from items that are long enough."""
        telling = [sums for each, sums in self._sums.items() if each.script == script and each.length >= TELLING]
        return _ratio(sum(telling, NOTHING), 1.0)

    def estimate(self, lots: Mapping[CostClass, Lot]) -> Estimate:
        """Estimate a job from its items by class."""
        tokens = core_s = 0.0
        known = 0
        for each, lot in lots.items():
            its_tokens = lot.estimated * self.token_ratio(each.script, each.length)
            tokens += its_tokens
            core_s += lot.items * self._curve(each.together).at(its_tokens / lot.items)
            known += lot.estimated if self._over(each.together, length=each.length).windows >= SURE_WINDOWS else 0
        estimated = sum(lot.estimated for lot in lots.values())
        return Estimate(
            items=sum(lot.items for lot in lots.values()),
            windows=sum(lot.windows for lot in lots.values()),
            tokens=round(tokens),
            core_s=core_s * self.pace if self.whole.core_s or self._rows else None,
            known=known / max(1, estimated),
        )

    def _over(self, together: str | None = None, script: str | None = None, length: int | None = None) -> CostSums:
        """Return the sums over the classes that match the given parts."""
        wanted = (together, script, length)
        if wanted not in self._over_parts:
            found = [sums for each, sums in self._sums.items() if each.fits(*wanted)]
            self._over_parts[wanted] = sum(found, NOTHING)
        return self._over_parts[wanted]

    def _curve(self, together: str) -> "CostCurve":
        """Return the core seconds of an item by its tokens, for items that are read together in this way."""
        if together not in self._curves:
            self._curves[together] = self._make_curve(together)
        return self._curves[together]

    def _make_curve(self, together: str) -> "CostCurve":
        before, whole = self._before(together), self._whole_level
        level = self._level([(sums, before) for each, sums in self._sums.items() if each.together == together], whole)
        by_length = {bisect_left(LENGTHS, row.length): float(row.length + ITEM_TOKENS) for row in self._rows}
        points = []
        for length in sorted(by_length.keys() | {each.length for each in self._sums if each.together == together}):
            sums = self._over(together, length=length)
            effort = _effort(sums) / sums.items if sums.items > 0 else by_length.get(length)
            if effort is not None:
                its_level = self._level([(sums, before)], level)
                points.append((effort, its_level * before.at(effort - ITEM_TOKENS) / effort))
        return CostCurve.through(points, level * before.rate)

    def _before(self, together: str) -> "CostCurve":
        """Return the cost of items according to the passes; without passes, the average of the version by effort."""
        if not self._rows:
            whole = self.whole
            return CostCurve((), whole.core_s / _effort(whole) if _effort(whole) else 0.0)
        longest = self._rows[-1]
        item_s = ITEM_TOKENS * longest.together_s / longest.length
        points = []
        for row in self._rows:
            effort = row.length + ITEM_TOKENS
            points.append((effort, ((row.alone_s if together == ONE else row.together_s) + item_s) / effort))
        return CostCurve.through(points, 0.0)

    @cached_property
    def _whole_level(self) -> float:
        """The ratio of all core seconds to those that the passes predict; 1 before any work."""
        return self._level([(sums, self._before(each.together)) for each, sums in self._sums.items()], 1.0)

    def _level(self, parts: Iterable[tuple[CostSums, "CostCurve"]], prior: float) -> float:
        """Return the ratio of measured to expected core seconds. With little work it is close to ``prior``."""
        found = [(sums, sums.items * before.at(sums.tokens / sums.items)) for sums, before in parts if sums.items > 0]
        expected_s = sum(seconds for _, seconds in found)
        if not expected_s:
            return prior
        windows = sum(sums.windows for sums, _ in found)
        level = sum(sums.core_s for sums, _ in found) / expected_s
        weight = windows / (windows + (PRIOR_WINDOWS_BY_PASSES if self._rows else PRIOR_WINDOWS))
        return prior + (level - prior) * weight


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Core seconds of an item by its effort: joined points that never go down, and constant rates outside of them."""

    points: Sequence[tuple[float, float]]
    rate: float

    @classmethod
    def through(cls, rates: Iterable[tuple[float, float]], rate: float) -> "CostCurve":
        """Return the curve through points: pairs of an effort and the seconds per unit of effort there."""
        points: list[tuple[float, float]] = []
        for effort, its_rate in sorted(rates):
            seconds = effort * its_rate
            points.append((effort, max(seconds, points[-1][1] if points else 0.0)))
        return cls(points, rate)

    def at(self, tokens: float) -> float:
        """Return the core seconds of an item with this number of tokens."""
        effort, points = tokens + ITEM_TOKENS, self.points
        if not points:
            return effort * self.rate
        place = bisect_left(points, (effort, 0.0))
        if place in (0, len(points)):
            its_effort, seconds = points[min(place, len(points) - 1)]
            return seconds * effort / its_effort
        (low, before), (high, after) = points[place - 1], points[place]
        return before + (after - before) * (effort - low) / (high - low)


def _effort(sums: CostSums) -> float:
    """Return the effort of items: their tokens, and a fixed amount for each item."""
    return sums.tokens + ITEM_TOKENS * sums.items


def _ratio(sums: CostSums, prior: float) -> float:
    return (sums.tokens + PRIOR_TOKENS * prior) / (sums.estimated + PRIOR_TOKENS)
