"""Every call the client makes, as plain data: its route, its content and how its reply is read. Pure.

Many of these functions become methods of both clients, so their arguments and docstrings are public. The routes are
written as in the OpenAPI document, and a test compares the two.
"""

import uuid
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypedDict, TypeVar
from urllib.parse import quote

import orjson
from pydantic import BaseModel

from corelane.client.wire import JobItem, dump_body, dump_form, dump_lines, dump_lines_async
from corelane.domain.batches import Batch, BatchList, FileList, FileObject, Upload
from corelane.domain.job_requests import LinesHead
from corelane.domain.jobs import Job, JobList, JobStatus, Priority, ResultList, TaskOptions, Webhook
from corelane.domain.overview import Overview

#: Longest wait of one request, in seconds: below the 60 s after which proxies drop a silent connection.
LONGEST_POLL_S = 55.0

#: Results asked for in one page.
PAGE_ITEMS = 500

JSON, NDJSON = {"Content-Type": "application/json"}, {"Content-Type": "application/x-ndjson"}

Reply = TypeVar("Reply")
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Call(Generic[Reply]):
    """One request; ``read`` turns the body of a success into a reply, or raises ValueError, KeyError or TypeError.

    ``path`` fills the route's parameters. A call that is not ``repeatable`` is sent again only if the service certainly
    did not accept it. If ``content`` is a function, it is called each time the request is sent.
    """

    method: str
    route: str
    read: Callable[[bytes], Reply]
    path: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | Iterable[bytes] | AsyncIterable[bytes] | Callable[[], Iterable[bytes]] | None = None
    wait_s: float = 0.0
    repeatable: bool = True
    tried_once: bool = False

    @property
    def url(self) -> str:
        """The route with its parameters filled in and quoted."""
        parts = {name: quote(part, safe="/" if name == "core" else "@") for name, part in self.path.items()}
        return self.route.format(**parts)


class JobParts(TypedDict, total=False):
    """The fields of a job except its items; see ``POST /v1/jobs``."""

    model: str
    sticky_key: str | None
    contexts: Mapping[str, str] | None
    options: TaskOptions | Mapping[str, Any] | None
    priority: Priority | str | None
    expires_in_s: float | None
    not_before: datetime | str | None
    metadata: Mapping[str, str] | None
    keep_s: int | None
    invalid_items: Literal["refuse", "fail"] | None
    webhook: Webhook | Mapping[str, Any] | None
    input_url: str | None
    output_url: str | None


class JobFilters(TypedDict, total=False):
    """Which jobs to list; see ``GET /v1/jobs``."""

    id: Sequence[str] | str
    status: Sequence[JobStatus | str] | JobStatus | str
    model: str
    q: str
    name: str
    failed_items: bool
    code: str
    owner: str
    created_after: datetime | str
    created_before: datetime | str


def job_head(parts: JobParts) -> dict[str, Any]:
    """Return a job without its items, with only the given parts."""
    return {"model": "default"} | {name: part for name, part in parts.items() if part is not None}


def job_body(items: Iterable[JobItem], parts: JobParts) -> bytes:
    """Return the body of a job, with only the given parts."""
    listed = {} if parts.get("input_url") else {"items": list(items)}
    return dump_body(listed | job_head(parts))


def new_key() -> str:
    """Return a new, unique idempotency key."""
    return uuid.uuid4().hex


def submit(body: bytes, key: str, wait_s: float) -> Call[Job]:
    """Submit a job. The key makes sending it twice harmless."""
    wait_s = min(wait_s, LONGEST_POLL_S)
    headers = JSON | {"Idempotency-Key": key} | ({"Prefer": f"wait={wait_s:.0f}"} if wait_s >= 1 else {})
    return Call("POST", "/v1/jobs", of(Job), headers=headers, content=body, wait_s=wait_s)


def put_job(name: str, body: bytes, wait_s: float) -> Call[Job]:
    """Submit a job under the caller's own name for it. The name makes sending it twice harmless."""
    call = submit(body, "", wait_s)
    headers = {header: value for header, value in call.headers.items() if header != "Idempotency-Key"}
    return replace(call, method="PUT", route="/v1/jobs/{job_id}", path={"job_id": name}, headers=headers)


def same_as_lines(call: Call[Reply], items: Iterable[JobItem], head: Mapping[str, Any]) -> Call[Reply]:
    """Return the same call with the job sent as lines; ``items`` are read again each time."""
    return replace(call, headers=call.headers | NDJSON, content=partial(dump_lines, head, items), wait_s=0.0)


def submit_lines(
    items: Iterable[JobItem] | AsyncIterable[JobItem],
    head: LinesHead | Mapping[str, Any] | None = None,
    *,
    idempotency_key: str | None = None,
) -> Call[Job]:
    """Submit a job of any number of items, sent while they are read. The service keeps nothing of a refused job.

    Memory use is constant. Only the service checks the items, and it names a bad one by its line: the head is line 1,
    the first item line 2. Tried once, as an iterator cannot be read twice. With an idempotency key you may send the
    same lines again. ``AsyncClient`` takes asynchronous iterables too.
    """
    dump: Any = dump_lines_async if isinstance(items, AsyncIterable) else dump_lines
    headers = NDJSON | ({} if idempotency_key is None else {"Idempotency-Key": idempotency_key})
    return Call(
        "POST", "/v1/jobs", of(Job), headers=headers, content=dump(head or {}, items), repeatable=False, tried_once=True
    )


def get_job(job_id: str, wait_s: float = 0.0) -> Call[Job]:
    """Return a job once it is final, or as it stands after ``wait_s`` (at most 55 s)."""
    wait_s = min(wait_s, LONGEST_POLL_S)
    params = {"wait": f"{wait_s:.3f}"} if wait_s > 0 else {}
    return Call("GET", "/v1/jobs/{job_id}", of(Job), {"job_id": job_id}, params, wait_s=wait_s)


def list_jobs(filters: JobFilters, after: str | None, limit: int) -> Call[JobList]:
    """Read one page of jobs, newest first."""
    return Call("GET", "/v1/jobs", of(JobList), params={**page_params(after, limit), **filter_params(filters)})


def page_params(after: str | None, limit: int) -> dict[str, str]:
    """Return the query parameters of a page."""
    return {"limit": str(limit)} | ({"after": after} if after else {})


def filter_params(filters: JobFilters) -> dict[str, str | list[str]]:
    """Return filters as query parameters."""
    params: dict[str, str | list[str]] = {}
    for name, value in filters.items():
        if isinstance(value, datetime):
            params[name] = value.isoformat()
        elif isinstance(value, str):
            params[name] = value
        elif isinstance(value, bool):
            params[name] = str(value).lower()
        elif isinstance(value, Iterable):
            params[name] = [str(each) for each in value]
    return params


def retry(job_id: str) -> Call[Job]:
    """Retry the unanswered items of a final job in a new job; repeated calls return the same one."""
    return Call("POST", "/v1/jobs/{job_id}/retry", of(Job), {"job_id": job_id})


def delete_job(job_id: str) -> Call[None]:
    """Delete a job and its results, tried once: a second try would find nothing. An open job is canceled first."""
    return Call("DELETE", "/v1/jobs/{job_id}", read_nothing, {"job_id": job_id}, tried_once=True)


def cancel(job_id: str) -> Call[Job]:
    """Cancel the unanswered items of a job; tried once. A final job stays as it is."""
    return Call("POST", "/v1/jobs/{job_id}/cancel", of(Job), {"job_id": job_id}, tried_once=True)


def results(job_id: str, after: str | None) -> Call[ResultList]:
    """Read one page of results."""
    params = page_params(after, PAGE_ITEMS)
    return Call("GET", "/v1/jobs/{job_id}/results", of(ResultList), {"job_id": job_id}, params)


def events(job_id: str, after: str | None) -> Call[None]:
    """Stream a job's events after the last one that was read."""
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
    return Call("GET", "/v1/jobs/{job_id}/events", read_nothing, {"job_id": job_id}, headers=headers)


def drop_results(job_id: str, before: int) -> Call[Job]:
    """Drop the stored results of items below index ``before``. The job's ``results_from`` is the first that remains."""
    return Call("DELETE", "/v1/jobs/{job_id}/results", of(Job), {"job_id": job_id}, {"before": str(before)})


def upload_file(path: str | Path, purpose: Upload = "batch") -> Call[FileObject]:
    """Upload a file of lines for a batch, or any file that an item names (`user_data`), a piece at a time."""
    boundary = new_key()
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    content = partial(dump_form, Path(path), purpose, boundary)
    return Call("POST", "/v1/files", of(FileObject), headers=headers, content=content, repeatable=False)


def list_files(after: str | None, limit: int) -> Call[FileList]:
    """Read one page of files, newest first."""
    return Call("GET", "/v1/files", of(FileList), params=page_params(after, limit))


def get_file(file_id: str) -> Call[FileObject]:
    """Return a file's name, size, purpose and times."""
    return Call("GET", "/v1/files/{file_id}", of(FileObject), {"file_id": file_id})


def read_file(file_id: str) -> Call[bytes]:
    """Read a file's content."""
    return Call("GET", "/v1/files/{file_id}/content", bytes, {"file_id": file_id})


def delete_file(file_id: str) -> Call[None]:
    """Delete a file; tried once."""
    return Call("DELETE", "/v1/files/{file_id}", read_nothing, {"file_id": file_id}, tried_once=True)


def create_batch(
    input_file_id: str,
    *,
    completion_window: str = "24h",
    metadata: Mapping[str, str] | None = None,
    idempotency_key: str | None = None,
) -> Call[Batch]:
    """Answer every line of an uploaded file in the background. The key makes sending the call twice harmless."""
    headers = JSON | {"Idempotency-Key": idempotency_key or new_key()}
    given = {"input_file_id": input_file_id, "endpoint": "/v1/answers", "completion_window": completion_window}
    body = dump_body(given | ({"metadata": dict(metadata)} if metadata else {}))
    return Call("POST", "/v1/batches", of(Batch), headers=headers, content=body)


def list_batches(after: str | None, limit: int) -> Call[BatchList]:
    """Read one page of batches, newest first."""
    return Call("GET", "/v1/batches", of(BatchList), params=page_params(after, limit))


def get_batch(batch_id: str) -> Call[Batch]:
    """Return a batch in its current state, with current counts."""
    return Call("GET", "/v1/batches/{batch_id}", of(Batch), {"batch_id": batch_id})


def cancel_batch(batch_id: str) -> Call[Batch]:
    """End a batch with the results it has by now; tried once."""
    return Call("POST", "/v1/batches/{batch_id}/cancel", of(Batch), {"batch_id": batch_id}, tried_once=True)


def list_deliveries(job_id: str) -> Call[list[dict[str, Any]]]:
    """List the webhooks of a job, or of a batch, and the attempts to post them."""
    if job_id.startswith("batch_"):
        return list_batch_deliveries(job_id)
    return Call("GET", "/v1/jobs/{job_id}/deliveries", read_list, {"job_id": job_id})


def list_batch_deliveries(batch_id: str) -> Call[list[dict[str, Any]]]:
    """List the webhooks of a batch and the attempts to post them."""
    return Call("GET", "/v1/batches/{batch_id}/deliveries", read_list, {"batch_id": batch_id})


def redeliver(delivery_id: str) -> Call[dict[str, Any]]:
    """Post a webhook again, with the same id and the same bytes."""
    return Call("POST", "/v1/deliveries/{delivery_id}/redeliver", read_object, {"delivery_id": delivery_id})


def cores() -> Call[list[dict[str, Any]]]:
    """List the cores of the fleet, their states and their models."""
    return Call("GET", "/v1/cores", read_list)


def overview() -> Call[Overview]:
    """Return the state of the service: whether the backlog drains, lanes, cores, rates, and open issues."""
    return Call("GET", "/v1/overview", of(Overview))


def models() -> Call[list[dict[str, Any]]]:
    """List the model versions that are served."""
    return Call("GET", "/v1/models", read_list)


def get_model(model: str) -> Call[dict[str, Any]]:
    """Return one version with facts such as its ``task``; for an alias, the version that most jobs go to."""
    return Call("GET", "/v1/models/{model}", read_object, {"model": model})


def load_model(model: str, core: str = "all", *, manifest_sha256: str | None = None) -> Call[dict[str, Any]]:
    """Load a version on one core, or on all; returns where it should be loaded; see ``cores``."""
    given = {"model": model, "manifest_sha256": manifest_sha256}
    body = dump_body({name: part for name, part in given.items() if part is not None})
    return Call("POST", "/v1/cores/{core}/models", read_object, {"core": core}, headers=JSON, content=body)


def reload_model(version: str, core: str = "all", *, manifest_sha256: str | None = None) -> Call[dict[str, Any]]:
    """Load a version again from its artifact, on one core or on all that hold it; returns where it should be loaded."""
    route, path = "/v1/cores/{core}/models/{version}/reload", {"core": core, "version": version}
    body = dump_body({"manifest_sha256": manifest_sha256})
    return Call("POST", route, read_object, path, headers=JSON, content=body)


def unload_model(version: str, core: str = "all", *, force: bool = False) -> Call[dict[str, Any]]:
    """Drain and unload a version on one core, or on all; returns where it should still be loaded."""
    params = {"force": "true"} if force else {}
    return Call("DELETE", "/v1/cores/{core}/models/{version}", read_object, {"core": core, "version": version}, params)


def aliases() -> Call[list[dict[str, Any]]]:
    """List the aliases and what they mean."""
    return Call("GET", "/v1/aliases", read_list)


def set_alias(alias: str, weights: Mapping[str, float] | str, *, force: bool = False) -> Call[dict[str, Any]]:
    """Make an alias refer to a version, or to several by weight."""
    means = {"version": weights} if isinstance(weights, str) else {"weights": dict(weights)}
    body = dump_body(means | {"force": force})
    return Call("PUT", "/v1/aliases/{alias}", read_object, {"alias": alias}, headers=JSON, content=body)


def unset_alias(alias: str) -> Call[dict[str, Any]]:
    """Remove an alias that was set. It then means again what the workers' settings say."""
    return Call("DELETE", "/v1/aliases/{alias}", read_object, {"alias": alias})


def ready() -> Call[dict[str, Any]]:
    """Return whether an item sent now would be answered."""
    return Call("GET", "/readyz", read_object, tried_once=True)


def of(kind: type[Model]) -> Callable[[bytes], Model]:
    """Return a function that reads a model; fields that this client does not know are ignored."""
    return partial(kind.model_validate_json, extra="ignore")


def read_list(body: bytes) -> list[dict[str, Any]]:
    """Return the ``data`` of a list."""
    data: Sequence[dict[str, Any]] = orjson.loads(body)["data"]
    return list(data)


def read_nothing(body: bytes) -> None:
    """Ignore an empty reply."""


def read_object(body: bytes) -> dict[str, Any]:
    """Return a JSON object."""
    return dict(orjson.loads(body))
