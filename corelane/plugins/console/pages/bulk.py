"""Retry or cancel everything that a filter matches: count the jobs first, then act in steps once confirmed."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import Field, TypeAdapter, ValidationError

from api.deps import StateDep, SubmitCaller
from api.state import AppState
from corelane.domain.api_keys import Caller
from corelane.domain.bulk import BulkAction, BulkRequest
from corelane.domain.job_filter import JobFilter
from corelane.errors import InvalidInput, Overloaded, Unavailable
from corelane.plugins.console.auth import CONSOLE
from corelane.plugins.console.pages.filters import address, read_query, write_query
from corelane.plugins.console.pages.forms import faults_of, first, read_form
from corelane.plugins.console.pages.page_route import PageRoute
from corelane.plugins.console.pages.render import is_htmx, render
from corelane.plugins.console.routes import act_on_jobs

router = APIRouter(prefix=f"{CONSOLE}/jobs", route_class=PageRoute)

#: One request takes steps for this long, in seconds. Then the page shows the progress and sends the next request.
STEPS_S = 2.0

#: The page's word for what was done to a job.
PAST = {BulkAction.RETRY: "retried", BulkAction.CANCEL: "canceled"}


#: A number of jobs.
Number = Annotated[int, Field(ge=0, le=10**12)]


@dataclass(slots=True)
class BulkProgress:
    """The progress of a bulk action over all its requests; the page passes it from one to the next."""

    matched: Number = 0
    done: Number = 0
    #: Number of jobs that are not changed, by code of the reason.
    counts: dict[str, Number] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    after: str | None = None
    is_over: bool = False
    #: Why the action pauses now.
    pause: str = ""

    @classmethod
    def read(cls, text: str) -> "BulkProgress":
        """Read the progress from the page. It is only shown, and decides only where to continue."""
        if not text:
            return cls()
        try:
            carried = TypeAdapter(cls).validate_json(text)
            return replace(carried, is_over=False, pause="")
        except ValidationError:
            raise InvalidInput("this page is not whole: begin again from the list of jobs") from None

    def write(self) -> str:
        """Return the progress as text for the page."""
        return orjson.dumps(asdict(self)).decode()

    @property
    def others(self) -> Sequence[tuple[int, str]]:
        """Return how many jobs are not changed, and why; the most frequent reason first."""
        return sorted(((count, self.details.get(code, code)) for code, count in self.counts.items()), reverse=True)


@router.post("/bulk")
async def act_on_everything(request: Request, state: StateDep, caller: SubmitCaller) -> Response:
    """Count the jobs of an action, or do it if the form confirms it."""
    form = await read_form(request)
    query, is_dry = first(form, "filter"), first(form, "sure") != "yes"
    try:
        action = BulkAction(first(form, "action"))
        wanted = read_query(query)
        if first(form, "of") == "selected":
            wanted = selected(form, wanted)
            query = write_query(wanted)
    except ValidationError as error:
        raise InvalidInput("; ".join(faults_of(error, {}))) from None
    except ValueError:
        raise InvalidInput("jobs can be retried or canceled") from None
    progress = BulkProgress.read(first(form, "progress"))
    await take_steps(state, caller, BulkRequest(action=action, filter=wanted, dry_run=is_dry), progress)
    shown: dict[str, Any] = {
        "action": action.value,
        "past": PAST[action],
        "query": query,
        "is_dry": is_dry,
        "progress": progress,
        "back": address("jobs", wanted),
    }
    return render(request, "parts/bulk.html" if is_htmx(request) else "bulk.html", **shown)


def selected(form: Mapping[str, Sequence[str]], shown: JobFilter) -> JobFilter:
    """Return the filter of the selected jobs of a list; raise InvalidInput if there are none."""
    if not form.get("id"):
        raise InvalidInput("no job is selected: tick the boxes of some jobs first")
    return JobFilter(id=tuple(form["id"]), owner=shown.owner)


async def take_steps(state: AppState, caller: Caller, asked: BulkRequest, progress: BulkProgress) -> None:
    """Take steps until all is done, the time is up, or the service is too busy."""
    until = time.monotonic() + STEPS_S
    while not progress.is_over and time.monotonic() < until:
        step = asked.model_copy(update={"after": progress.after})
        try:
            result = await act_on_jobs(step, state, caller)
        except (Overloaded, Unavailable) as error:
            progress.pause = error.detail
            return
        progress.matched += result.matched
        progress.done += result.done
        for reason in result.skipped:
            progress.counts[reason.code] = progress.counts.get(reason.code, 0) + reason.count
            progress.details[reason.code] = reason.detail
        progress.after, progress.is_over = result.next, not result.has_more
