"""A job's record: the fields that Redis holds, and the ``Job`` that callers see. Pure."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from corelane.domain.dispatch import PUBLIC
from corelane.domain.ids import iso_time
from corelane.domain.job_references import describe_input, describe_output
from corelane.domain.jobs import Job, JobStatus, Priority, TaskOptions
from corelane.domain.usage import Used
from corelane.errors import fails_again
from corelane.tasks.registry import parse_options

#: Fields of a job's hash that are plain text, and those that are plain numbers. Most may be missing.
TEXTS = (
    *("version", "name", "retry_of", "asked", "webhook_url", "webhook_events", "file"),
    *("input_url", "output_url", "invalid_items"),
)
NUMBERS = (
    *("total", "succeeded", "failed", "canceled", "expired", "dropped", "fed", "results_window", "keep_s"),
    *("created_ms", "started_ms", "finished_ms", "expires_ms", "kept_until_ms", "not_before_ms"),
)
#: The longest time after which callers are asked to look at a job again, in seconds.
LONGEST_RETRY_S = 3600

#: What a job has addresses for, beside itself.
PARTS = ("results", "cancel", "events", "deliveries", "retry")
#: Prefix of the fields that count failed items; the error code follows it.
FAILED = "failed:"
PRIORITIES = tuple(Priority)


def _failures(values: Mapping[str, bytes]) -> dict[str, int]:
    """Return the number of failed items by error code."""
    return {name[len(FAILED) :]: int(count) for name, count in values.items() if name.startswith(FAILED)}


def _time(ms: int | None) -> str | None:
    return None if ms is None else iso_time(ms)


@dataclass(slots=True)
class JobRecord:
    """One job at the time it was read; results before item ``dropped`` are gone.

    Do not change a record. The class is not frozen, because a frozen record takes five times as long to make.
    """

    id: str
    status: JobStatus
    version: str
    total: int
    created_ms: int
    started_ms: int | None = None
    finished_ms: int | None = None
    succeeded: int = 0
    failed: int = 0
    canceled: int = 0
    expired: int = 0
    options: TaskOptions = field(default_factory=TaskOptions)
    metadata: dict[str, str] = field(default_factory=dict)
    owner: str = PUBLIC
    priority: Priority = Priority.NORMAL
    expires_ms: int | None = None
    not_before_ms: int | None = None
    dropped: int = 0
    #: Number of failed items by error code.
    failures: dict[str, int] = field(default_factory=dict)
    error: dict[str, str] | None = None
    name: str | None = None
    retry_of: str | None = None
    #: The model that was asked for; ``version`` is the version that serves it.
    asked: str = ""
    webhook_url: str | None = None
    webhook_events: str | None = None
    keep_s: int | None = None
    kept_until_ms: int | None = None
    #: The file of the job's items, if they were sent as lines, and the number of items fed from it.
    file: str | None = None
    fed: int = 0
    results_window: int | None = None
    #: The sizes of the file's parts, in bytes; empty if it is one file.
    parts: tuple[int, ...] = ()
    #: The URL that the items are read from, and how far they were read. Below: the URL for results, and their state.
    input_url: str | None = None
    input: dict[str, Any] | None = None
    #: What happens to a job if its input has an invalid item.
    invalid_items: Literal["refuse", "fail"] | None = None
    output_url: str | None = None
    output: dict[str, Any] | None = None
    #: The job's usage so far, in stored form. None before its first results. Most reads of a job leave it out.
    stored_usage: str | None = None
    #: The stored results of the first items, read together with the job; empty if they were not read.
    first_results: Sequence[bytes | None] = ()

    @classmethod
    def parse(cls, job: str, raw: dict[bytes, bytes], first_results: Sequence[bytes | None] = ()) -> "JobRecord":
        """Read a job's hash."""
        values = {key.decode(): value for key, value in raw.items()}
        known: dict[str, Any] = {name: values[name].decode() for name in TEXTS if name in values}
        known |= {name: int(values[name]) for name in NUMBERS if name in values}
        if "input_url" in known or "output_url" in known:
            known |= {name: orjson.loads(values[name]) for name in ("input", "output", "parts") if name in values}
        return cls(
            id=job,
            status=JobStatus(values["status"].decode()),
            options=parse_options(values["options"]),
            metadata=orjson.loads(values["metadata"]),
            owner=values["owner"].decode(),
            priority=PRIORITIES[int(values["priority"])],
            error=orjson.loads(values["error"]) if "error" in values else None,
            stored_usage=values["usage"].decode() if "usage" in values else None,
            failures=_failures(values) if values["failed"] != b"0" else {},
            first_results=first_results,
            **known,
        )

    @property
    def lasting(self) -> int:
        """Return how many failed items would fail again on every retry."""
        return sum(count for code, count in self.failures.items() if fails_again(code))

    @property
    def is_unread(self) -> bool:
        """Return whether the job's input is not completely read, so that the number of items is not known yet."""
        return self.input_url is not None and self.file is None and not self.status.is_final

    @property
    def ahead_s(self) -> float:
        """Return the seconds until the job may begin; below 0 if it may."""
        return (self.not_before_ms or 0) / 1000 - time.time()

    @property
    def retry_after_s(self) -> int:
        """Return the seconds after which to look at an open job again: when its time has come, in an hour at most."""
        return int(min(max(1, self.ahead_s), LONGEST_RETRY_S))

    @property
    def used(self) -> Used | None:
        """Return the job's usage so far."""
        return None if self.stored_usage is None else Used.decode(self.stored_usage)

    def describe(self, *, usage: bool = True) -> Job:
        """Return the job as callers see it, without results; with ``usage``, also the job's usage."""
        return Job.model_validate(self.shown(usage=usage))

    def shown(self, *, usage: bool = True) -> dict[str, Any]:
        """Return the fields of a ``Job`` in their order, to be sent without building the model first.

        Addresses are relative to the service.
        """
        home, is_early = f"/v1/jobs/{self.id}", self.ahead_s > 0 and not self.status.is_final
        shown: dict[str, Any] = {
            "object": "job",
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "model": self.version,
            "task": self.options.task,
            "counts": {
                "total": self.total,
                "succeeded": self.succeeded,
                "failed": self.failed,
                "canceled": self.canceled,
                "expired": self.expired,
            },
            "priority": self.priority,
            "created_at": iso_time(self.created_ms),
            "started_at": _time(self.started_ms),
            "finished_at": _time(self.finished_ms),
            "not_before": _time(self.not_before_ms),
            "expires_at": _time(self.expires_ms),
            "kept_until": _time(self.kept_until_ms),
            "waiting_for": f"its time to come, {_time(self.not_before_ms)}" if is_early else None,
            "error": self.error,
            "results_from": self.dropped,
            "retry_of": self.retry_of,
        }
        if self.input_url is not None:
            shown["input"] = describe_input(self.input_url, self.input, is_final=self.status.is_final).model_dump()
        if self.output_url is not None:
            shown["output"] = describe_output(self.output_url, self.output).model_dump()
        if self.failures:
            most_first = sorted(self.failures.items(), key=lambda found: (-found[1], found[0]))
            shown["failures"] = [
                {"code": code, "count": count, "retryable": not fails_again(code)} for code, count in most_first
            ]
        return shown | {
            "urls": {"self": home} | {part: f"{home}/{part}" for part in PARTS},
            "options": self.options.by_name(),
            "metadata": self.metadata,
            "usage": used.shown() if usage and (used := self.used) is not None else None,
            "results": None,
        }
