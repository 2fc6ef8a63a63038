"""One job's page: its progress, its results, and the possible actions.

Items are not on the page. Each has a button that fetches it.
"""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request, Response

from api.deps import JobId, ReadCaller, StateDep, SubmitCaller
from api.jobs import CallerWait
from api.routes import jobs as api_jobs
from api.routes.deliveries import list_job_deliveries
from api.routes.results import stream_results
from api.state import AppState
from corelane.domain.api_keys import Caller
from corelane.domain.events import EventType
from corelane.domain.jobs import JobStatus
from corelane.errors import NotFound
from corelane.plugins.console.auth import CONSOLE
from corelane.plugins.console.pages.downloads import DownloadForm, as_csv, download
from corelane.plugins.console.pages.forms import go_to, service_of
from corelane.plugins.console.pages.nav import Update
from corelane.plugins.console.pages.page_route import PageRoute
from corelane.plugins.console.pages.render import fragment, render, rights
from corelane.plugins.console.pages.result_walk import ResultWalks, results_page
from corelane.plugins.console.pages.snippets import job_snippets
from corelane.store.jobs.events import BEGINNING, PAGE_EVENTS, StoredEvent
from corelane.store.jobs.records import JobRecord
from corelane.tasks.registry import task_named
from corelane.tasks.task import Task

router = APIRouter(prefix=f"{CONSOLE}/jobs", route_class=PageRoute)


@router.get("/{job_id}")
async def show_job(
    job_id: JobId,
    request: Request,
    state: StateDep,
    caller: ReadCaller,
    after: Annotated[int, Query(ge=0)] = 0,
    only: JobStatus | None = None,
    did: str = "",
) -> Response:
    """Show a job."""
    record = await state.jobs.require(job_id, caller)
    deliveries = (await list_job_deliveries(job_id, state, caller)).data if record.webhook_url else []
    return render(
        request,
        "job.html",
        **await about_job(state, record),
        page=await results_page(state, record, max(after, record.dropped), only),
        stream=None if record.status.is_final else f"page=job&id={record.id}&after={after}&only={only or ''}",
        deliveries=deliveries,
        options=record.options.model_dump(mode="json", exclude_defaults=True),
        with_url=False,
        snippets=job_snippets(service_of(request), record.id, task_named(record.options.task)),
        did=did,
    )


class JobFeed:
    """The changing parts of a job's page while the job runs: its head, and its results if more are expected."""

    def __init__(self) -> None:
        self._walks = ResultWalks()

    async def __call__(self, state: AppState, caller: Caller, arguments: Mapping[str, str]) -> Update:
        """Return the parts of the page."""
        job_id, only, after = (arguments.get(name, "") for name in ("id", "only", "after"))
        record = await state.jobs.require(job_id, caller)
        about = await about_job(state, record)
        can = rights(caller.scopes)
        shown = {"job-head": fragment("parts/job_head.html", can=can, **about)}
        if re.fullmatch("[0-9]{1,18}", after):
            status = JobStatus(only) if only in set(JobStatus) else None
            page = await self._walks.find(record, max(int(after), record.dropped), status).go_on(state, record)
            shown["results"] = fragment("parts/results.html", job=about["job"], task=about["task"], page=page)
        return Update(shown)


@router.get("/{job_id}/results")
async def show_results(
    job_id: JobId,
    request: Request,
    state: StateDep,
    caller: ReadCaller,
    after: Annotated[int, Query(ge=0)] = 0,
    only: JobStatus | None = None,
) -> Response:
    """Show a page of a job's results."""
    record = await state.jobs.require(job_id, caller)
    page = await results_page(state, record, max(after, record.dropped), only)
    task = task_named(record.options.task)
    return render(request, "parts/results.html", job=record.describe(), task=task, page=page)


@router.get("/{job_id}/results.{form}")
async def download_results(job_id: JobId, form: DownloadForm, state: StateDep, caller: ReadCaller) -> Response:
    """Send all results of a job as a download, one a line; of a running one, to its end."""
    record = await state.jobs.require(job_id, caller)
    lines = stream_results(state, record, record.dropped)
    return download(record.id, form, lines if form == "jsonl" else as_table(task_named(record.options.task), lines))


async def as_table(task: Task, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield results as CSV: ``result`` and ``score`` as the page shows them, then a result's own fields and error."""
    yield as_csv([("index", "id", "status", "result", "score", *task.nothing, "error_code", "error")])
    async for piece in lines:
        yield as_csv(_row(task, orjson.loads(line)) for line in piece.splitlines())


def _row(task: Task, raw: Mapping[str, Any]) -> list[object]:
    shown = task.present.line(task.result.model_validate(raw))
    error = raw.get("error") or {}
    own = [raw.get(name) for name in task.nothing]
    return [raw["index"], raw.get("id"), raw["status"], *shown, *own, error.get("code"), error.get("detail")]


@router.get("/{job_id}/events")
async def show_events(job_id: JobId, request: Request, state: StateDep, caller: ReadCaller) -> Response:
    """Show the first events of a job."""
    record = await state.jobs.require(job_id, caller)
    found = await state.job_events.read(record.id, BEGINNING)
    told = [tell(event, record) for event in found.events]
    is_all = len(found.events) < PAGE_EVENTS
    return render(request, "parts/events.html", events=list(zip(found.events, told, strict=True)), is_all=is_all)


def tell(event: StoredEvent, record: JobRecord) -> str:
    """Return a sentence about an event."""
    if event.type == EventType.COMPLETED:
        return f"ended: {record.status}"
    if event.type not in (EventType.RUNNING, EventType.PROGRESS):
        return ""
    counts = event.describe(record).counts
    return f"{counts.done:,} of {counts.total:,} done" + (f", {counts.failed:,} failed" if counts.failed else "")


@router.get("/{job_id}/items/{index}")
async def show_item(
    job_id: JobId, index: Annotated[int, Path(ge=0)], request: Request, state: StateDep, caller: ReadCaller
) -> Response:
    """Show one item, and its result."""
    record = await state.jobs.require(job_id, caller)
    if index >= record.total:
        raise NotFound(f"{record.id} has no item {index:,}")
    task, item = task_named(record.options.task), await state.store.item(record, index)
    rows = (await results_page(state, record, max(index, record.dropped), None)).rows
    result = next((row for row in rows if row.index == index and row.status is JobStatus.SUCCEEDED), None)
    shown = task.present.shown(item, result)
    return render(request, "parts/item.html", task=task, index=index, item=item, result=result, shown=shown)


@router.post("/{job_id}/cancel")
async def cancel(job_id: JobId, request: Request, state: StateDep, caller: SubmitCaller) -> Response:
    """Cancel a job."""
    await api_jobs.cancel_job(job_id, state, caller)
    return go_to(request, f"jobs/{job_id}", did="canceled")


@router.post("/{job_id}/retry")
async def retry(job_id: JobId, request: Request, state: StateDep, caller: SubmitCaller) -> Response:
    """Retry the unanswered items of a job, and redirect to the new job."""
    submitted = await api_jobs.take_retry(state, job_id, caller)
    await state.jobs.settle(submitted, CallerWait(None, request.receive))
    return go_to(request, f"jobs/{submitted.record.id}", did="retried")


@router.post("/{job_id}/delete")
async def delete(job_id: JobId, request: Request, state: StateDep, caller: SubmitCaller) -> Response:
    """Delete a job."""
    await api_jobs.delete_job(job_id, state, caller)
    return go_to(request, "jobs", did="deleted")


async def about_job(state: AppState, record: JobRecord) -> dict[str, Any]:
    """Return the data of the page's head."""
    job = await state.jobs.describe(record)
    return {
        "job": job,
        "task": task_named(record.options.task),
        "webhook_url": record.webhook_url,
        "wall_s": wall_s(record),
        "unanswered": max(0, job.counts.total - job.counts.succeeded - record.lasting),
        "lasting": [each for each in job.failures or () if not each.retryable],
    }


def wall_s(record: JobRecord) -> float | None:
    """Return the seconds from a job's creation to its end; None while it is open."""
    return None if record.finished_ms is None else (record.finished_ms - record.created_ms) / 1000
