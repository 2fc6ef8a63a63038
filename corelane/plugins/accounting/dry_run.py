"""Dry runs: forecast the size, time and cost of a job, and when it would end, without making it.

A dry run is checked like a submission, and raises the same errors. Two of them depend on the current load, so they
become part of the forecast: too much work waits, or the job would be late. Nothing is written, and no key or name is
used.
"""

from collections.abc import Iterable, Mapping

from corelane.domain.dispatch import SLICE_ITEMS, SLICE_TOKENS, cost_class
from corelane.domain.forecast import Size
from corelane.domain.ids import new_job_id
from corelane.domain.item_costs import CostClass
from corelane.domain.job_forecast import JobForecast, Refusal
from corelane.domain.jobs import Item, ItemError, JobHead
from corelane.domain.prices import Price
from corelane.domain.usage import Cost, cost_of
from corelane.errors import DeadlineInfeasible, Overloaded
from corelane.plugins.accounting.estimate import CostRates, Estimate, Lot
from corelane.settings import Settings
from corelane.store.jobs.submission import Admission, Submission
from corelane.store.rates import RateStore, VersionCosts
from corelane.submitting.dry_run import MAX_ERRORS
from corelane.submitting.items import BadItem
from corelane.submitting.ndjson import NdjsonBody
from corelane.submitting.submitter import Submitter, make_promise, require_in_time
from corelane.tasks.estimating import Estimator
from corelane.tasks.registry import task_named


class JobSizing:
    """Measures a job item by item, in constant memory: its tokens, its slices, and its items by class."""

    def __init__(
        self,
        head: JobHead,
        owner: str,
        admission: Admission,
        costs: VersionCosts,
    ) -> None:
        self._most = SLICE_ITEMS, SLICE_TOKENS
        self._head, self._owner, self._admission = head, owner, admission
        self._texts = head.shared_texts
        self._estimator = Estimator(self._texts, head.options)
        self.costs = costs
        self._rates = CostRates(costs.sums, costs.recent, costs.rows)
        self._ratios: dict[str, float] = {}
        #: The items of the slice that is being filled, and their tokens.
        self._slice: list[Item] = []
        self._slice_tokens = 0
        self.items = self.tokens = self.slices = self.bad = 0
        self.errors: list[ItemError] = []
        self.lots: dict[CostClass, Lot] = {}

    def add(self, item: Item | BadItem) -> None:
        """Measure the next item. An item that would fail by itself is only counted, and named if there is room."""
        if isinstance(item, BadItem):
            self.bad += 1
            self.errors += [ItemError(code=item.code, detail=item.detail)] if len(self.errors) < MAX_ERRORS else []
            return
        tokens = self._estimator.tokens(item)
        # The rule of ``cut_slices``.
        most_items, most_tokens = self._most
        if len(self._slice) >= most_items or self._slice_tokens + tokens > most_tokens:
            self.close()
        self._slice_tokens += tokens
        self._slice.append(item)
        self.items += 1
        self.tokens += tokens

    def close(self) -> "JobSizing":
        """End the slice that is being filled; return this object."""
        if not self._slice:
            return self
        ended, tokens, self._slice, self._slice_tokens = self._slice, self._slice_tokens, [], 0
        first, texts = self.items - len(ended), [self._text(item) for item in ended]
        its_class = CostClass.decode(cost_class(first, tokens, texts))
        if (ratio := self._ratios.get(its_class.script)) is None:
            ratio = self._ratios[its_class.script] = self._rates.text_ratio(its_class.script)
        lot = self.lots.setdefault(its_class, Lot())
        lot.items += len(ended)
        lot.estimated += tokens
        lot.windows += sum(self._estimator.windows(item, self.costs.max_length, ratio) for item in ended)
        self.slices += 1
        return self

    def describe(self, size: Size, refusal: Refusal | None = None) -> JobForecast:
        """Return the forecast of the job; ``size`` is the work that would be done until it ends."""
        head, admission, costs = self._head, self._admission, self.costs
        estimate = self._rates.estimate(self.lots)
        core_s = None if estimate.core_s is None else round(estimate.core_s, 6)
        promise = make_promise(admission, self._owner, head.priority.rank, size)
        told = promise.describe(costs.now_ms)
        late = False
        if head.expires_in_s is not None:
            try:
                require_in_time(promise, head.expires_in_s)
            except DeadlineInfeasible as error:
                late = True
                if head.refuse_if_late and refusal is None:
                    earliest_s = error.earliest_feasible_s
                    refusal = Refusal(code=error.code, detail=error.detail, earliest_feasible_s=earliest_s)
        return JobForecast(
            model=admission.version or "",
            bad_items=self.bad,
            errors=self.errors,
            items=estimate.items,
            windows=estimate.windows,
            tokens=estimate.tokens,
            core_s=core_s,
            cost=cost_at(costs.prices, core_s),
            position=told.position,
            tokens_ahead=told.tokens_ahead,
            finish_at=told.finish_at,
            earliest_at=told.earliest_at,
            latest_at=told.latest_at,
            late=late,
            refusal=refusal,
            note=note_of(estimate, costs) if admission.pause is None else f"it would wait: {admission.pause.text}",
        )

    def _text(self, item: Item) -> str:
        """Return an item's text."""
        _, text, text_id = task_named(self._head.options.task).parts(item)
        return text if text is not None else self._texts.get(text_id or "", "")


class JobDryRuns:
    """Forecasts jobs that are asked for with ``dry_run``."""

    def __init__(self, submitter: Submitter, rates: RateStore, settings: Settings) -> None:
        self._submitter = submitter
        self._rates = rates
        self._settings = settings

    async def job(self, submission: Submission, bad: Iterable[BadItem] = ()) -> JobForecast:
        """Forecast a job whose items are given, without the ``bad`` ones, which would fail by themselves."""
        await self._submitter.beside_others(submission, self._submitter.check_sizes)
        head, owner = submission.head, submission.owner
        admission = await self._submitter.admit(head, owner, submission.id)
        sizing = await self.begin(head, owner, admission)
        found: list[Item | BadItem] = [*submission.items, *bad]
        await self._submitter.beside_others(submission, lambda _: list(map(sizing.add, found)))
        sizing.close()
        refusal = None
        try:
            await self._submitter.require_room(admission, owner, sizing.tokens, asks_only=True)
        except Overloaded as error:
            refusal = Refusal(code=error.code, detail=error.detail, retry_after_s=error.retry_after_s)
        return sizing.describe(Size(sizing.tokens, sizing.slices), refusal)

    async def lines(self, body: NdjsonBody, owner: str) -> JobForecast:
        """Forecast a job that is sent as lines, after its head was read. Nothing of it is kept, here or on disk."""
        admission = await self._submitter.admit(body.head, owner, new_job_id(cell=self._settings.cell))
        sizing = await self.begin(body.head, owner, admission)
        async for found in body.read_items():
            sizing.add(found)
        size = Size(sizing.tokens, sizing.items)
        return sizing.close().describe(size)

    async def begin(self, head: JobHead, owner: str, admission: Admission) -> JobSizing:
        """Begin to measure an admitted job."""
        costs = await self._rates.read(admission.version or "")
        return JobSizing(head, owner, admission, costs)


def cost_at(prices: Mapping[Price | None, int], core_s: float | None) -> Cost | None:
    """Return the cost of core seconds if the cores share the work evenly; None if that is not known."""
    in_all = sum(prices.values())
    if core_s is None or not in_all:
        return None
    return cost_of({price: core_s * cores / in_all for price, cores in prices.items()})


def note_of(estimate: Estimate, costs: VersionCosts) -> str:
    """Return a sentence on how sure an estimate is, and which part of it is not known."""
    seen = costs.whole.items
    if estimate.core_s is None:
        note = (
            "no item of this model was measured yet, nor a pass: windows and tokens are estimated from the texts, and "
            "core seconds are not known"
        )
    elif not seen:
        note = (
            "no item of this model was measured yet: windows and tokens are estimated from the texts, and core seconds "
            "from passes that were measured when the model was made or loaded, which may be off by a half"
        )
    elif estimate.known > 0.99:
        note = f"from {seen:,.0f} recent items of this model, with enough of every size in this job"
    else:
        note = (
            f"from {seen:,.0f} recent items of this model; {1 - estimate.known:.0%} of this job's tokens are of sizes "
            "that few of them had"
        )
    priced = [price for price in costs.prices if price is not None]
    if priced and len(priced) < len(costs.prices):
        note += "; no cost, as some of the cores that hold this model have no price"
    elif len({price.currency for price in priced}) > 1:
        note += "; no cost, as the cores that hold this model have prices in several currencies"
    return note
