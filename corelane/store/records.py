"""A job's record: what Redis holds of it, less its items and results, and how that is shown."""

from dataclasses import dataclass, field

import orjson

from corelane.jobs import Counts, Job, JobStatus, JobUrls, Options, Priority, iso_time


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job as it stood when it was read; ``cuts`` holds the index of the first item of every slice."""

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
    options: Options = field(default_factory=Options)
    metadata: dict[str, str] = field(default_factory=dict)
    cuts: tuple[int, ...] = (0,)
    priority: Priority = Priority.NORMAL
    expires_ms: int | None = None

    @classmethod
    def parse(cls, job: str, raw: dict[bytes, bytes]) -> "JobRecord":
        """A job's hash as a record."""
        values = {key.decode(): value for key, value in raw.items()}
        started, finished, expires = (values.get(name) for name in ("started_ms", "finished_ms", "expires_ms"))
        return cls(
            id=job,
            status=JobStatus(values["status"].decode()),
            version=values["version"].decode(),
            total=int(values["total"]),
            created_ms=int(values["created_ms"]),
            started_ms=None if started is None else int(started),
            finished_ms=None if finished is None else int(finished),
            succeeded=int(values["succeeded"]),
            failed=int(values["failed"]),
            canceled=int(values["canceled"]),
            expired=int(values["expired"]),
            options=Options.model_validate_json(values["options"]),
            metadata=orjson.loads(values["metadata"]),
            cuts=tuple(map(int, values["cuts"].split())),
            priority=list(Priority)[int(values["priority"])],
            expires_ms=None if expires is None else int(expires),
        )

    def describe(self) -> Job:
        """The job as callers see it, without results. Addresses are relative to the service."""
        home = f"/v1/jobs/{self.id}"
        return Job(
            id=self.id,
            status=self.status,
            model=self.version,
            counts=Counts(
                total=self.total,
                succeeded=self.succeeded,
                failed=self.failed,
                canceled=self.canceled,
                expired=self.expired,
            ),
            priority=self.priority,
            created_at=iso_time(self.created_ms),
            started_at=None if self.started_ms is None else iso_time(self.started_ms),
            finished_at=None if self.finished_ms is None else iso_time(self.finished_ms),
            expires_at=None if self.expires_ms is None else iso_time(self.expires_ms),
            urls=JobUrls(self=home, results=f"{home}/results", cancel=f"{home}/cancel"),
            options=self.options,
            metadata=self.metadata,
        )
