"""Dry runs of batches: every line of a file is checked and measured, as the keeper would, and nothing is kept."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from corelane.domain.batches import BatchError, window_s
from corelane.domain.forecast import Size
from corelane.domain.ids import new_job_id
from corelane.domain.job_forecast import BatchForecast, JobForecast, Refusal
from corelane.domain.jobs import JobHead
from corelane.domain.prices import Price
from corelane.domain.usage import Cost, cost_of
from corelane.errors import CorelaneError, NotCalibrated, UnknownModel, VersionNotReady
from corelane.plugins.files.batches.checking import Sorted, Sorter, group_head
from corelane.plugins.files.settings import FilesFields
from corelane.settings import Settings
from corelane.submitting.dry_run import MAX_ERRORS, DryRuns, Sizing
from corelane.submitting.submitter import Submitter


@dataclass(slots=True)
class GroupSizing:
    """The job that would answer the lines of one model and its options; ``refused`` if it could not be made."""

    head: JobHead
    sizing: Sizing | None = None
    refused: CorelaneError | None = None
    lines: int = 0


@dataclass(slots=True)
class BatchSizing:
    """A batch as far as its lines were read."""

    lines: int = 0
    bad: int = 0
    errors: list[BatchError] = field(default_factory=list)
    groups: list[GroupSizing] = field(default_factory=list)

    def note_error(self, code: str, message: str, line: int | None = None) -> None:
        """List an error, if there is room for it."""
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(BatchError(code=code, message=message, line=line))


class BatchDryRun:
    """Forecasts one batch."""

    def __init__(
        self, submitter: Submitter, dry_runs: DryRuns, settings: Settings, owner: str, completion_window: str
    ) -> None:
        self._submitter = submitter
        self._dry_runs = dry_runs
        self._settings = settings
        self._owner = owner
        self._window_s = window_s(completion_window)
        self._batch = BatchSizing()
        self._sorter = Sorter(settings)

    async def run(self, file_id: str, content: Iterator[bytes]) -> BatchForecast:
        """Read the file to its end, and forecast the batch; raise NotReady like a job, and the errors of storage."""
        batch, most = self._batch, self._settings.of(FilesFields).max_file_lines
        find = partial(self._submitter.contexts.find_some, self._owner)
        async for block in self._sorter.blocks(content, find):
            for model, options in self._sorter.groups[len(batch.groups) :]:
                batch.groups.append(await self._open(model, options))
            await asyncio.to_thread(self._measure, block)
            if batch.lines > most:
                break
        return self._describe(file_id, self._refusal(most))

    async def _open(self, model: str, options: str) -> GroupSizing:
        """Check the job of a group as it would be checked when it is submitted."""
        group = GroupSizing(group_head(model, options, self._window_s))
        try:
            job_id = new_job_id(cell=self._settings.cell)
            admission = await self._submitter.admit(group.head, self._owner, job_id)
        except (UnknownModel, NotCalibrated, VersionNotReady) as error:
            group.refused = error
            self._batch.note_error(error.code, error.detail)
            return group
        group.sizing = await self._dry_runs.begin(group.head, self._owner, admission, self._sorter.known)
        return group

    def _measure(self, block: Sequence[Sorted]) -> None:
        batch = self._batch
        for line, good in block:
            batch.lines += 1
            if good is None or line.group is None:
                batch.bad += 1
                code, message = line.error or ("internal", "")
                batch.note_error(code, message, line.number)
                continue
            group = batch.groups[line.group]
            group.lines += 1
            if group.sizing is None:
                batch.bad += 1
            else:
                group.sizing.add(good.item)

    def _refusal(self, most: int) -> Refusal | None:
        """Return why the batch as a whole would fail."""
        batch = self._batch
        if batch.lines > most:
            return Refusal(code="too_many_lines", detail=f"the file has more than {most:,} lines; send several batches")
        if not batch.lines:
            return Refusal(code="empty_file", detail="the file has no lines")
        if batch.bad == batch.lines:
            return Refusal(code="invalid_input", detail="no line of the file can be asked; `errors` says why")
        return None

    def _describe(self, file_id: str, refusal: Refusal | None) -> BatchForecast:
        batch = self._batch
        asked = [group for group in batch.groups if group.sizing is not None and group.sizing.close().items]
        # The jobs are answered side by side: each ends once all are done, more or less.
        size = Size(
            sum(group.sizing.tokens for group in asked if group.sizing),
            sum(group.sizing.items for group in asked if group.sizing),
        )
        jobs = [group.sizing.describe(size) for group in asked if group.sizing]
        core_s = [job.core_s for job in jobs if job.core_s is not None]
        cost, notes = self._cost(asked, jobs), list(dict.fromkeys(job.note for job in jobs))
        if cost is None and jobs and all(job.cost for job in jobs):
            notes.append("no cost in all, as the jobs have theirs in several currencies")
        last = max(jobs, key=lambda job: job.finish_at or "", default=None)
        return BatchForecast(
            input_file_id=file_id,
            lines=batch.lines,
            bad_lines=batch.bad,
            errors=batch.errors,
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
            refusal=refusal,
            note="; ".join(notes) or "no line can be asked",
        )

    @staticmethod
    def _cost(groups: Sequence[GroupSizing], jobs: Sequence[JobForecast]) -> Cost | None:
        """Return the cost of all jobs; None unless each has one, in the same currency."""
        core_s: dict[Price | None, float] = {}
        for group, job in zip(groups, jobs, strict=True):
            if group.sizing is None or job.core_s is None or job.cost is None:
                return None
            prices = group.sizing.costs.prices
            in_all = sum(prices.values())
            for price, cores in prices.items():
                core_s[price] = core_s.get(price, 0.0) + job.core_s * cores / in_all
        return cost_of(core_s)
