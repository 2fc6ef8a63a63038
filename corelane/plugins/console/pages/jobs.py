"""The list of jobs: filtered by its address, updated live, and exported."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from api.deps import ReadCaller, StateDep
from api.routes.jobs import of_owner
from api.routes.results import StreamCut
from api.state import AppState
from corelane.domain.api_keys import Caller
from corelane.domain.ids import is_job_id
from corelane.domain.job_filter import ALL_OWNERS, JobFilter
from corelane.domain.jobs import DEFAULT_TASK, Job, JobStatus
from corelane.errors import Forbidden, InvalidInput
from corelane.plugins.console.auth import CONSOLE
from corelane.plugins.console.pages.downloads import DownloadForm, as_csv, download
from corelane.plugins.console.pages.filters import address, fill_form, read_filter
from corelane.plugins.console.pages.forms import refusal, service_of
from corelane.plugins.console.pages.job import wall_s
from corelane.plugins.console.pages.nav import Update
from corelane.plugins.console.pages.page_route import PageRoute
from corelane.plugins.console.pages.render import fragment, render, rights
from corelane.plugins.console.pages.snippets import jobs_snippets, task_snippets
from corelane.store.jobs.records import JobRecord
from corelane.tasks.registry import task_named

router = APIRouter(prefix=f"{CONSOLE}/jobs", route_class=PageRoute)

#: Jobs on a page, and in one round trip of an export.
PAGE_JOBS, EXPORT_JOBS = 25, 200

#: Chips above the list: name, states, whether items failed, and the tally that counts such jobs.
CHIPS: Sequence[tuple[str, tuple[JobStatus, ...], bool, str]] = (
    ("All", (), False, "all"),
    ("Open", (JobStatus.QUEUED, JobStatus.RUNNING), False, "open"),
    ("Succeeded", (JobStatus.SUCCEEDED,), False, "succeeded"),
    ("With failed items", (), True, "with_failed_items"),
    ("Failed", (JobStatus.FAILED,), False, "failed"),
    ("Canceled", (JobStatus.CANCELED,), False, "canceled"),
    ("Expired", (JobStatus.EXPIRED,), False, "expired"),
)

#: Times that one click selects.
PERIODS = (("Last hour", timedelta(hours=1)), ("Last day", timedelta(days=1)), ("Last 7 days", timedelta(days=7)))

#: Columns of an export.
COLUMNS = (
    *("id", "name", "status", "model", "priority", "total", "succeeded", "failed", "canceled", "expired"),
    *("created_at", "started_at", "finished_at", "metadata", "retry_of"),
)


@router.get("")
async def show_jobs(
    request: Request,
    state: StateDep,
    caller: ReadCaller,
    after: Annotated[str, Query(max_length=40)] = "",
    did: str = "",
) -> Response:
    """Show a page of the jobs that the address selects, newest first."""
    given = {name: request.query_params.getlist(name) for name in request.query_params}
    wanted, status = JobFilter(), 200
    faults: list[str] = []
    records: list[JobRecord] = []
    following = None
    try:
        wanted = read_filter(given)
        if after and not is_job_id(after):
            raise InvalidInput("this page's address is not whole: begin again with the newest jobs")
        page = await state.store.page(state.jobs.owner_meant(caller, wanted.owner), wanted, after or None, PAGE_JOBS)
        records, following = page.records, page.next
    except (ValidationError, InvalidInput, Forbidden) as error:
        faults, status = refusal(error, {"q": "id or name"})
    shown = await about_list(request, state, caller, wanted, records, after, following)
    return render(request, "jobs.html", status, **shown, faults=faults, form=fill_form(given), did=did)


async def about_list(
    request: Request,
    state: AppState,
    caller: Caller,
    wanted: JobFilter,
    records: Sequence[JobRecord],
    after: str,
    following: str | None,
) -> dict[str, Any]:
    """Return the data of a list's page."""
    owner, sees_all = state.jobs.owner_meant(caller, wanted.owner), state.jobs.sees_all(caller)
    tallies = await state.store.tallies(owner)
    every = await state.store.tallies(ALL_OWNERS) if sees_all and wanted.owner is None else None
    open_ids = [record.id for record in records if not record.status.is_final]
    first = records[0].id if records and not after and wanted.is_empty else ""
    usual = task_named(DEFAULT_TASK)
    service, now = service_of(request), datetime.now(UTC).replace(microsecond=0)
    return {
        "jobs": [of_owner(record.describe(), record, caller) for record in records],
        "took": {record.id: wall_s(record) for record in records},
        "is_filtered": not wanted.is_empty,
        "has_owners": state.settings.requires_keys,
        "models": sorted({name for model in await state.fleet.models() for name in (model.version, *model.aliases)}),
        "all_owners": address("jobs", wanted.model_copy(update={"owner": ALL_OWNERS})),
        "others": every and {name: count - tallies[name] for name, count in every.items()},
        "chips": make_chips(wanted, tallies),
        "periods": [
            (name, address("jobs", wanted.model_copy(update={"created_after": now - period, "created_before": None})))
            for name, period in PERIODS
        ],
        "newest": address("jobs", wanted) if after else None,
        "older": address("jobs", wanted, after=following) if following else None,
        "export": {kind: address("jobs/export", wanted, form=kind) for kind in ("csv", "jsonl")},
        "snippets": jobs_snippets(service, wanted.given()),
        "first_job": task_snippets(service, usual.present.call(usual.example, {})),
        "stream": f"page=jobs&ids={','.join(open_ids)}&first={first}&owner={quote(wanted.owner or '')}"
        if open_ids or first
        else None,
    }


def make_chips(wanted: JobFilter, tallies: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the chips. Each keeps the list's other conditions. Chips have counts only without other conditions."""
    others = wanted.model_copy(update={"status": (), "has_failed_items": False})
    counts = tallies if others.is_empty else {}
    return [
        {
            "name": name,
            "address": address("jobs", others.model_copy(update={"status": states, "has_failed_items": failed_items})),
            "count": counts.get(tally),
            "is_chosen": (set(wanted.status), wanted.has_failed_items) == (set(states), failed_items),
        }
        for name, states, failed_items, tally in CHIPS
    ]


async def feed(state: AppState, caller: Caller, arguments: Mapping[str, str]) -> Update:
    """Return the rows of the jobs that were open when the page was made, and whether there are newer jobs."""
    ids = [job for job in arguments.get("ids", "").split(",")[:PAGE_JOBS] if is_job_id(job)]
    shown, owner = dict[str, str](), arguments.get("owner", "")
    can = rights(caller.scopes)
    for record in await state.store.records(ids):
        if record.owner == caller.owner or state.jobs.sees_all(caller):
            took = {record.id: wall_s(record)}
            job = of_owner(record.describe(), record, caller)
            shown[record.id] = fragment("parts/job_row.html", job=job, took=took, can=can)
    if first := arguments.get("first"):
        page = await state.store.page(state.jobs.owner_meant(caller, owner or None), JobFilter(), None, 1)
        is_newer = bool(page.records) and page.records[0].id > first
        shown["newer"] = (
            fragment("parts/newer.html", address=address("jobs", JobFilter(owner=owner or None))) * is_newer
        )
    return Update(shown)


@router.get("/export")
async def export(request: Request, state: StateDep, caller: ReadCaller, form: DownloadForm = "csv") -> Response:
    """Send every job that a filter matches, as a download."""
    wanted = read_filter({name: request.query_params.getlist(name) for name in request.query_params})
    owner = state.jobs.owner_meant(caller, wanted.owner)
    return download("jobs", form, export_rows(state, owner, wanted, form))


async def export_rows(state: AppState, owner: str, wanted: JobFilter, form: str) -> AsyncIterator[bytes]:
    """Yield the export in pieces; it is cut when the server stops."""
    if form == "csv":
        yield as_csv([COLUMNS])
    after: str | None = None
    while True:
        if state.jobs.completions.is_closing:
            raise StreamCut
        page = await state.store.page(owner, wanted, after, EXPORT_JOBS)
        jobs = [record.describe() for record in page.records]
        if form == "csv":
            yield as_csv([columns_of(job) for job in jobs])
        else:
            yield b"".join(job.model_dump_json(exclude={"results"}).encode() + b"\n" for job in jobs)
        if page.next is None:
            return
        after = page.next


def columns_of(job: Job) -> list[object]:
    """Return a job as a row of an export."""
    plain = job.model_dump(mode="json") | job.counts.model_dump()
    plain["metadata"] = "; ".join(f"{name}={value}" for name, value in job.metadata.items())
    return [plain[name] for name in COLUMNS]
