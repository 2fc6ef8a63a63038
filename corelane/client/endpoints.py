"""Every call the client makes, as plain data: where it goes, what it carries, how its answer is read. Pure.

The routes are written as the OpenAPI document writes them, and a test holds one against the other.
"""

import uuid
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar
from urllib.parse import quote

import orjson
from pydantic import BaseModel

from corelane.client.wire import JobItem, dump_body, dump_form, dump_lines
from corelane.domain.batches import Batch, BatchList, FileList, FileObject
from corelane.domain.jobs import Job, JobList, JobStatus, Options, Priority, ResultList, Webhook

#: Longest wait of one request, in seconds: below the 60 s after which proxies drop a silent connection.
LONGEST_POLL_S = 55.0

#: Results asked for in one page.
PAGE_ITEMS = 500

JSON, NDJSON = {"Content-Type": "application/json"}, {"Content-Type": "application/x-ndjson"}

Answer = TypeVar("Answer")
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request; ``read`` makes its answer of a success' body, or raises ValueError, KeyError or TypeError.

    ``path`` fills the route. A call that is not ``repeatable`` is only sent again if it was surely not taken in. What
    ``content`` calls for is made anew each time it is sent.
    """

    method: str
    route: str
    read: Callable[[bytes], Answer]
    path: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | Iterable[bytes] | AsyncIterable[bytes] | Callable[[], Iterable[bytes]] | None = None
    wait_s: float = 0.0
    repeatable: bool = True
    max_retries: int | None = None

    @property
    def url(self) -> str:
        """The route with its parts in place, whatever characters they hold."""
        parts = {name: quote(part, safe="/" if name == "core" else "@") for name, part in self.path.items()}
        return self.route.format(**parts)


class JobParts(TypedDict, total=False):
    """All of a job but its items; see ``POST /v1/jobs``."""

    model: str
    sticky_key: str | None
    contexts: Mapping[str, str] | None
    options: Options | Mapping[str, Any] | None
    priority: Priority | str | None
    expires_in_s: float | None
    refuse_if_late: bool
    metadata: Mapping[str, str] | None
    labels: Sequence[str] | None
    keep_s: int | None
    webhook: Webhook | Mapping[str, Any] | None


class JobFilters(TypedDict, total=False):
    """Which jobs to list; see ``GET /v1/jobs``."""

    status: Sequence[JobStatus | str] | JobStatus | str
    model: str
    label: Sequence[str] | str
    created_after: datetime | str
    created_before: datetime | str


def job_head(parts: JobParts) -> dict[str, Any]:
    """All of a job but its items, with only those parts that were given."""
    return {"model": "default"} | {
        name: part for name, part in parts.items() if part is not None and (name, part) != _ON_TIME
    }


def job_body(items: Iterable[JobItem], parts: JobParts) -> bytes:
    """The body of a job, with only those parts that were given."""
    return dump_body({"items": list(items)} | job_head(parts))


_ON_TIME = ("refuse_if_late", False)


def submit(body: bytes, key: str, wait_s: float) -> Call[Job]:
    """Hand in a job. The key makes sending it twice harmless."""
    wait_s = min(wait_s, LONGEST_POLL_S)
    headers = JSON | {"Idempotency-Key": key} | ({"Prefer": f"wait={wait_s:.0f}"} if wait_s >= 1 else {})
    return Call("POST", "/v1/jobs", of(Job), headers=headers, content=body, wait_s=wait_s)


def put_job(name: str, body: bytes, wait_s: float) -> Call[Job]:
    """Hand in a job under a name of the caller's own, which makes sending it twice harmless."""
    call = submit(body, "", wait_s)
    headers = {header: value for header, value in call.headers.items() if header != "Idempotency-Key"}
    return replace(call, method="PUT", route="/v1/jobs/{job_id}", path={"job_id": name}, headers=headers)


def same_as_lines(call: Call[Job], items: Iterable[JobItem], parts: JobParts) -> Call[Job]:
    """The same job sent as lines, under the same key or name; ``items`` are read again each time it is sent."""
    headers = call.headers | NDJSON
    return replace(call, headers=headers, content=partial(dump_lines, job_head(parts), items), wait_s=0.0)


def submit_lines(content: Iterable[bytes] | AsyncIterable[bytes], key: str | None) -> Call[Job]:
    """Hand in a job of lines, once: what they come from cannot be read again."""
    headers = NDJSON | ({} if key is None else {"Idempotency-Key": key})
    return Call("POST", "/v1/jobs", of(Job), headers=headers, content=content, repeatable=False, max_retries=0)


def get_job(job_id: str, wait_s: float) -> Call[Job]:
    """A job, once it is final or the wait is over."""
    wait_s = min(wait_s, LONGEST_POLL_S)
    params = {"wait": f"{wait_s:.3f}"} if wait_s > 0 else {}
    return Call("GET", "/v1/jobs/{job_id}", of(Job), {"job_id": job_id}, params, wait_s=wait_s)


def list_jobs(filters: JobFilters, after: str | None, limit: int) -> Call[JobList]:
    """One page of jobs, newest first."""
    params: dict[str, str | list[str]] = {"limit": str(limit)}
    for name, value in filters.items():
        if isinstance(value, datetime):
            params[name] = value.isoformat()
        elif isinstance(value, str):
            params[name] = value
        elif isinstance(value, Iterable):
            params[name] = [str(each) for each in value]
    if after is not None:
        params["after"] = after
    return Call("GET", "/v1/jobs", of(JobList), params=params)


def retry(job_id: str) -> Call[Job]:
    """Ask again what was not answered; the same new job however often it is called."""
    return Call("POST", "/v1/jobs/{job_id}/retry", of(Job), {"job_id": job_id})


def delete_job(job_id: str) -> Call[None]:
    """Forget a job, tried once: a second try would find nothing."""
    return Call("DELETE", "/v1/jobs/{job_id}", read_nothing, {"job_id": job_id}, max_retries=0)


def cancel(job_id: str) -> Call[Job]:
    """Cancel a job, tried once."""
    return Call("POST", "/v1/jobs/{job_id}/cancel", of(Job), {"job_id": job_id}, max_retries=0)


def results(job_id: str, after: str | None) -> Call[ResultList]:
    """One page of results."""
    params = {"limit": str(PAGE_ITEMS)} | ({"after": after} if after else {})
    return Call("GET", "/v1/jobs/{job_id}/results", of(ResultList), {"job_id": job_id}, params)


def events(job_id: str, after: str | None) -> Call[None]:
    """A job's events as a stream, from after the one that was read last."""
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
    return Call("GET", "/v1/jobs/{job_id}/events", read_nothing, {"job_id": job_id}, headers=headers)


def drop_results(job_id: str, before: int) -> Call[Job]:
    """Have results forgotten."""
    return Call("DELETE", "/v1/jobs/{job_id}/results", of(Job), {"job_id": job_id}, {"before": str(before)})


def upload_file(path: Path) -> Call[FileObject]:
    """Upload a file of questions for a batch, a piece at a time."""
    boundary = uuid.uuid4().hex
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    content = partial(dump_form, path, boundary)
    return Call("POST", "/v1/files", of(FileObject), headers=headers, content=content, repeatable=False)


def list_files(after: str | None, limit: int) -> Call[FileList]:
    """One page of files, newest first."""
    params = {"limit": str(limit)} | ({"after": after} if after else {})
    return Call("GET", "/v1/files", of(FileList), params=params)


def get_file(file_id: str) -> Call[FileObject]:
    """What is known of a file."""
    return Call("GET", "/v1/files/{file_id}", of(FileObject), {"file_id": file_id})


def read_file(file_id: str) -> Call[bytes]:
    """A file's content."""
    return Call("GET", "/v1/files/{file_id}/content", bytes, {"file_id": file_id})


def delete_file(file_id: str) -> Call[None]:
    """Forget a file, tried once."""
    return Call("DELETE", "/v1/files/{file_id}", read_nothing, {"file_id": file_id}, max_retries=0)


def create_batch(
    input_file_id: str, completion_window: str, metadata: Mapping[str, str] | None, key: str
) -> Call[Batch]:
    """Have every line of a file answered. The key makes sending it twice harmless."""
    given = {"input_file_id": input_file_id, "endpoint": "/v1/answers", "completion_window": completion_window}
    body = dump_body(given | ({"metadata": dict(metadata)} if metadata else {}))
    return Call("POST", "/v1/batches", of(Batch), headers=JSON | {"Idempotency-Key": key}, content=body)


def list_batches(after: str | None, limit: int) -> Call[BatchList]:
    """One page of batches, newest first."""
    params = {"limit": str(limit)} | ({"after": after} if after else {})
    return Call("GET", "/v1/batches", of(BatchList), params=params)


def get_batch(batch_id: str) -> Call[Batch]:
    """A batch as it stands."""
    return Call("GET", "/v1/batches/{batch_id}", of(Batch), {"batch_id": batch_id})


def cancel_batch(batch_id: str) -> Call[Batch]:
    """End a batch with what is answered, tried once."""
    return Call("POST", "/v1/batches/{batch_id}/cancel", of(Batch), {"batch_id": batch_id}, max_retries=0)


def list_deliveries(job_id: str) -> Call[list[dict[str, Any]]]:
    """The webhooks of a job."""
    return Call("GET", "/v1/jobs/{job_id}/deliveries", read_list, {"job_id": job_id})


def dead_deliveries(limit: int) -> Call[list[dict[str, Any]]]:
    """Webhooks that were given up, the latest first."""
    return Call("GET", "/v1/deliveries", read_list, params={"limit": str(limit)})


def get_delivery(delivery_id: str) -> Call[dict[str, Any]]:
    """One webhook and its attempts."""
    return Call("GET", "/v1/deliveries/{delivery_id}", read_object, {"delivery_id": delivery_id})


def redeliver(delivery_id: str) -> Call[dict[str, Any]]:
    """Post a webhook again."""
    return Call("POST", "/v1/deliveries/{delivery_id}/redeliver", read_object, {"delivery_id": delivery_id})


def cores() -> Call[list[dict[str, Any]]]:
    """The cores of the fleet."""
    return Call("GET", "/v1/cores", read_list)


def models() -> Call[list[dict[str, Any]]]:
    """The model versions that can be asked."""
    return Call("GET", "/v1/models", read_list)


def load_model(
    model: str, core: str, count: int | None, lazy: bool, manifest_sha256: str | None
) -> Call[dict[str, Any]]:
    """Have cores load a version."""
    given = {"model": model, "count": count, "lazy": lazy, "manifest_sha256": manifest_sha256}
    body = dump_body({name: part for name, part in given.items() if part is not None})
    return Call("POST", "/v1/cores/{core}/models", read_object, {"core": core}, headers=JSON, content=body)


def reload_model(version: str, core: str, manifest_sha256: str | None) -> Call[dict[str, Any]]:
    """Have cores load a version anew."""
    route, path = "/v1/cores/{core}/models/{version}/reload", {"core": core, "version": version}
    body = dump_body({"manifest_sha256": manifest_sha256})
    return Call("POST", route, read_object, path, headers=JSON, content=body)


def unload_model(version: str, core: str, force: bool) -> Call[dict[str, Any]]:
    """Have cores unload a version."""
    params = {"force": "true"} if force else {}
    return Call("DELETE", "/v1/cores/{core}/models/{version}", read_object, {"core": core, "version": version}, params)


def aliases() -> Call[list[dict[str, Any]]]:
    """What each alias means."""
    return Call("GET", "/v1/aliases", read_list)


def set_alias(alias: str, weights: Mapping[str, float] | str, force: bool) -> Call[dict[str, Any]]:
    """Make an alias mean a version, or several by weight."""
    means = {"version": weights} if isinstance(weights, str) else {"weights": dict(weights)}
    body = dump_body(means | {"force": force})
    return Call("PUT", "/v1/aliases/{alias}", read_object, {"alias": alias}, headers=JSON, content=body)


def unset_alias(alias: str) -> Call[dict[str, Any]]:
    """Forget an alias that was set."""
    return Call("DELETE", "/v1/aliases/{alias}", read_object, {"alias": alias})


def ready() -> Call[dict[str, Any]]:
    """Whether a question asked now would be answered."""
    return Call("GET", "/readyz", read_object, max_retries=0)


def of(kind: type[Model]) -> Callable[[bytes], Model]:
    """Reads a model; fields that are newer than this client are passed over."""

    def read(body: bytes) -> Model:
        return kind.model_validate_json(body, extra="ignore")

    return read


def read_list(body: bytes) -> list[dict[str, Any]]:
    """The ``data`` of a list."""
    data: Sequence[dict[str, Any]] = orjson.loads(body)["data"]
    return list(data)


def read_nothing(body: bytes) -> None:
    """An answer that says nothing more."""


def read_object(body: bytes) -> dict[str, Any]:
    """A JSON object."""
    return dict(orjson.loads(body))
