"""What a job or a batch would be, take and cost: dry runs, of which the service keeps nothing."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Unpack

from corelane.client.endpoints import JSON, NDJSON, Call, JobParts, job_head, of
from corelane.client.protocol import TOO_LARGE, Exchange, ServiceProtocol
from corelane.client.wire import JobItem, dump_body, dump_lines
from corelane.domain.job_forecast import BatchForecast, JobForecast
from corelane.errors import ServiceError

#: What makes a request a dry run.
DRY = {"dry_run": True}


def forecast(
    service: ServiceProtocol, items: Iterable[JobItem], *, lines: bool = False, **parts: Unpack[JobParts]
) -> Exchange[JobForecast]:
    """Return what a job would be, take and cost, and when it would end, as the service would take it now.

    It is checked as a real one, and raises the same errors. A job that is too large for one request is forecast as
    lines, which is how ``submit`` would send it; with ``lines`` at once.
    """
    given = list(items)
    head = job_head(parts) | DRY
    if not lines:
        try:
            return (yield from service.call(of_job(dump_body({"items": given} | head))))
        except ServiceError as refusal:
            if refusal.status != TOO_LARGE:
                raise
            refused = refusal
        try:
            return (yield from service.call(of_lines(given, head)))
        except ServiceError:
            raise refused from None
    return (yield from service.call(of_lines(given, head)))


def of_job(body: bytes) -> Call[JobForecast]:
    """Forecast a job."""
    return Call("POST", "/v1/jobs", of(JobForecast), headers=dict(JSON), content=body)


def of_lines(items: Iterable[JobItem], head: Mapping[str, Any]) -> Call[JobForecast]:
    """Forecast a job that is sent as lines."""
    return Call("POST", "/v1/jobs", of(JobForecast), headers=dict(NDJSON), content=partial(dump_lines, head, items))


def forecast_batch(input_file_id: str, *, completion_window: str = "24h") -> Call[BatchForecast]:
    """Return what a batch of an uploaded file would be, take and cost: its lines are checked and measured."""
    given = {"input_file_id": input_file_id, "endpoint": "/v1/answers", "completion_window": completion_window}
    return Call("POST", "/v1/batches", of(BatchForecast), headers=dict(JSON), content=dump_body(given | DRY))
