"""Dry runs of batches: check and measure every line of a file, as the keeper would, and keep nothing."""

import asyncio
from collections.abc import Iterator, Sequence

from corelane.domain.batches import BatchRequest, window_s
from corelane.domain.forecast import Size
from corelane.domain.ids import new_job_id
from corelane.domain.job_forecast import BatchForecast, JobForecast, Refusal
from corelane.domain.prices import Price
from corelane.domain.usage import Cost, cost_of
from corelane.errors import InvalidInput
from corelane.plugins.files.batches.checking import Sorted, Sorter, group_head
from corelane.settings import Settings
from corelane.submitting.dry_run import DryRuns, Sizing
from corelane.submitting.submitter import Submitter


class BatchDryRun:
    """Forecasts one batch."""

    def __init__(
        self, submitter: Submitter, dry_runs: DryRuns, settings: Settings, owner: str, asked: BatchRequest
    ) -> None:
        self._submitter = submitter
        self._dry_runs = dry_runs
        self._settings = settings
        self._owner = owner
        self._window_s = window_s(asked.completion_window)
        self._sorter = Sorter(settings, asked.endpoint)
        #: The jobs for the lines of each model and its options; None if there can be no job.
        self._groups: list[Sizing | None] = []
        #: Number of lines in groups without a job.
        self._refused = 0

    async def run(self, file_id: str, content: Iterator[bytes]) -> BatchForecast:
        """Read the whole file and forecast the batch; raise NotReady as a job would, and the errors of storage."""
        async for block in self._sorter.blocks(content):
            for model, options in self._sorter.groups[len(self._groups) :]:
                self._groups.append(await self._open(model, options))
            await asyncio.to_thread(self._measure, block)
        return self._describe(file_id)

    async def _open(self, model: str, options: str) -> Sizing | None:
        """Check the job of a group as it would be checked on submission."""
        head = await group_head(self._submitter, model, options, self._window_s)
        try:
            admission = await self._submitter.admit(head, self._owner, new_job_id(cell=self._settings.cell))
        except InvalidInput as error:
            self._sorter.note_error(error.code, error.detail)
            return None
        return await self._dry_runs.begin(head, self._owner, admission)

    def _measure(self, block: Sequence[Sorted]) -> None:
        for line, good in block:
            if good is None or line.group is None:
                continue
            if (sizing := self._groups[line.group]) is None:
                self._refused += 1
            else:
                for item, _ in good.items:
                    sizing.add(item)

    def _describe(self, file_id: str) -> BatchForecast:
        sorter, bad = self._sorter, self._sorter.bad + self._refused
        asked = [sizing for sizing in self._groups if sizing is not None and sizing.close().items]
        none_left = "invalid_input", "no line of the file can be asked; `errors` says why"
        refusal = sorter.refusal or (none_left if bad == sorter.lines else None)
        # The jobs run in parallel: each ends at about the time when all are done.
        size = Size(sum(sizing.tokens for sizing in asked), sum(sizing.items for sizing in asked))
        jobs = [sizing.describe(size) for sizing in asked]
        core_s = [job.core_s for job in jobs if job.core_s is not None]
        cost, notes = self._cost(asked, jobs), list(dict.fromkeys(job.note for job in jobs))
        if cost is None and jobs and all(job.cost for job in jobs):
            notes.append("no cost in all, as the jobs have theirs in several currencies")
        last = max(jobs, key=lambda job: job.finish_at or "", default=None)
        return BatchForecast(
            input_file_id=file_id,
            lines=sorter.lines,
            bad_lines=bad,
            errors=sorter.errors,
            jobs=jobs,
            items=sum(job.items for job in jobs),
            windows=sum(job.windows for job in jobs),
            tokens=sum(job.tokens for job in jobs),
            core_s=round(sum(core_s), 6) if len(core_s) == len(jobs) and jobs else None,
            cost=cost,
            finish_at=last and last.finish_at,
            earliest_at=last and last.earliest_at,
            latest_at=last and last.latest_at,
            late=any(job.late for job in jobs),
            refusal=refusal and Refusal(code=refusal[0], detail=refusal[1]),
            note="; ".join(notes) or "no line can be asked",
        )

    @staticmethod
    def _cost(asked: Sequence[Sizing], jobs: Sequence[JobForecast]) -> Cost | None:
        """Return the cost of all jobs; None unless every job has a cost, in the same currency."""
        core_s: dict[Price | None, float] = {}
        for sizing, job in zip(asked, jobs, strict=True):
            if job.core_s is None or job.cost is None:
                return None
            prices = sizing.costs.prices
            in_all = sum(prices.values())
            for price, cores in prices.items():
                core_s[price] = core_s.get(price, 0.0) + job.core_s * cores / in_all
        return cost_of(core_s)
