"""Retry or cancel everything that a filter matches: counted first, done step by step once that is confirmed."""

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

#: One request takes steps for this long, in seconds; then the page shows how far it is, and goes on.
STEPS_S = 2.0

#: What the page calls a job after each action.
PAST = {BulkAction.RETRY: "retried", BulkAction.CANCEL: "canceled"}


#: A number of jobs.
Number = Annotated[int, Field(ge=0, le=10**12)]


@dataclass(slots=True)
class BulkProgress:
    """How far a bulk action is, over all its requests; the page carries it from one to the next."""

    matched: Number = 0
    done: Number = 0
    #: Jobs that are left as they are, and why, by code of the reason.
    counts: dict[str, Number] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    after: str | None = None
    is_over: bool = False
    #: Why it stopped for now.
    pause: str = ""

    @classmethod
    def read(cls, text: str) -> "BulkProgress":
        """Read what the page carried; it is shown and decides nothing but where to go on."""
        if not text:
            return cls()
        try:
            carried = TypeAdapter(cls).validate_json(text)
            return replace(carried, is_over=False, pause="")
        except ValidationError:
            raise InvalidInput("this page is not whole: begin again from the list of jobs") from None

    def write(self) -> str:
        """Return what the page carries."""
        return orjson.dumps(asdict(self)).decode()

    @property
    def others(self) -> Sequence[tuple[int, str]]:
        """How many jobs are left as they are, and why; the most first."""
        return sorted(((count, self.details.get(code, code)) for code, count in self.counts.items()), reverse=True)


@router.post("/bulk")
async def act_on_everything(request: Request, state: StateDep, caller: SubmitCaller) -> Response:
    """Count what an action would do, or do it if the form says so."""
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
