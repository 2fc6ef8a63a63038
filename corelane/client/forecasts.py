"""Forecasts of the time and cost of a job or a batch. They are dry runs: the service keeps nothing."""

from collections.abc import AsyncIterable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Unpack, cast

from corelane.client.endpoints import JSON, Call, JobParts, batch_body, job_head, of, submit_lines
from corelane.client.protocol import ServiceProtocol
from corelane.client.steps import Exchange
from corelane.client.wire import JobItem, dump_body
from corelane.domain.job_forecast import BatchForecast, JobForecast
from corelane.domain.job_requests import LinesHead

#: The field that makes a request a dry run.
DRY = {"dry_run": True}


def forecast(service: ServiceProtocol, items: Iterable[JobItem], **parts: Unpack[JobParts]) -> Exchange[JobForecast]:
    """Return the size, time and cost of a job, and when it would end, if it were submitted now.

    The job is checked like a real one, and raises the same errors. A job that is too large for one request is forecast
    as lines, which is how ``submit`` would send it.
    """
    given = list(items)
    head = job_head(parts) | DRY
    call = Call("POST", "/v1/jobs", of(JobForecast), headers=JSON, content=dump_body({"items": given} | head))
    found, _ = yield from service.call_or_lines(call, given, head)
    return found


def forecast_lines(
    items: Iterable[JobItem] | AsyncIterable[JobItem], head: LinesHead | Mapping[str, Any] | None = None
) -> Call[JobForecast]:
    """Forecast a job of any number of items, sent as they come. Memory use is constant; tried once."""
    given = head.model_dump(mode="json", exclude_unset=True) if isinstance(head, LinesHead) else dict(head or {})
    return cast(Call[JobForecast], replace(submit_lines(items, given | DRY), read=cast(Any, of(JobForecast))))


def forecast_batch(input_file_id: str, *, completion_window: str = "24h") -> Call[BatchForecast]:
    """Return the size, time and cost of a batch of an uploaded file: its lines are checked and measured."""
    given = batch_body(input_file_id, completion_window)
    return Call("POST", "/v1/batches", of(BatchForecast), headers=dict(JSON), content=dump_body(given | DRY))
