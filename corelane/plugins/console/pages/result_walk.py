"""Results for one page of the console, perhaps only of one status. A walk remembers where it stopped.

A stored result never changes. So a page that follows a running job reads each result once.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from api.state import AppState
from corelane.domain.jobs import JobStatus, Result
from corelane.store.jobs.records import JobRecord
from corelane.tasks.registry import task_named

#: Results on a page.
PAGE_RESULTS = 25

#: Results read in one round trip, and most results looked at for one page if only some are shown.
TRIP_RESULTS, MOST_LOOKED = 1000, 20_000

#: Walks that one process remembers.
MOST_WALKS = 256


@dataclass(frozen=True, slots=True)
class ResultsPage:
    """Some of a job's results. ``next`` is where the next page begins; None at the end, or if results are pending."""

    only: JobStatus | None
    first: int
    rows: list[Result]
    next: int | None
    is_cut: bool = False


@dataclass(slots=True)
class ResultWalk:
    """The results that one page has found so far, and the index of the next result to look at."""

    only: JobStatus | None
    first: int
    at: int
    rows: list[Result] = field(default_factory=list)

    @property
    def _is_full(self) -> bool:
        return len(self.rows) >= PAGE_RESULTS or self.at - self.first >= MOST_LOOKED

    async def go_on(self, state: AppState, record: JobRecord) -> ResultsPage:
        """Look at the results that are new, and return the page."""
        while self.at < record.total and not self._is_full:
            count = PAGE_RESULTS if self.only is None else TRIP_RESULTS
            begin = self.at
            found = await state.store.results(record, begin, count)
            if self.at != begin:
                # Another reader of the same page was faster.
                continue
            for raw in found:
                self.at += 1
                if self.only is None or raw["status"] == self.only:
                    self.rows.append(task_named(record.options.task).result.model_validate(raw))
                if len(self.rows) == PAGE_RESULTS:
                    break
            if len(found) < count:
                break
        awaits = not record.status.is_final and not self._is_full
        following = self.at if self.at < record.total and not awaits else None
        is_cut = len(self.rows) < PAGE_RESULTS and following is not None
        return ResultsPage(self.only, self.first, list(self.rows), following, is_cut)


class ResultWalks:
    """The walks of the pages that are being followed, by job, first item and status. The oldest are dropped."""

    def __init__(self) -> None:
        self._walks: OrderedDict[tuple[str, int, JobStatus | None], ResultWalk] = OrderedDict()

    def find(self, record: JobRecord, at: int, only: JobStatus | None) -> ResultWalk:
        """Return a page's walk; a new one begins at the page's first item."""
        key = (record.id, at, only)
        walk = self._walks.setdefault(key, ResultWalk(only, at, at))
        self._walks.move_to_end(key)
        if len(self._walks) > MOST_WALKS:
            self._walks.popitem(last=False)
        return walk


async def results_page(state: AppState, record: JobRecord, at: int, only: JobStatus | None) -> ResultsPage:
    """Return results from item ``at`` on; with a status, only a bounded number of results is searched for it."""
    return await ResultWalk(only, at, at).go_on(state, record)
