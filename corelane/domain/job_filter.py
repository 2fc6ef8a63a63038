"""Job filters: which jobs are listed. Pure, and the same for all searches."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from corelane.domain.ids import is_job_id
from corelane.domain.jobs import JobStatus
from corelane.domain.wire import Time, Wire, at_most, epoch_ms

#: Prefix of every job's id.
JOB_PREFIX = "job_"

#: Stands for all owners, in place of one.
ALL_OWNERS = "*"


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The fields of a job that a filter looks at."""

    id: str
    name: str | None
    status: str
    version: str
    failed: int
    created_ms: int
    #: Whether items failed with the code that the filter names.
    has_code: bool = False


class JobFilter(Wire):
    """A filter of jobs: it takes jobs that match every given field; without any field, all jobs of the caller."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    id: Annotated[tuple[str, ...], Field(max_length=100), at_most(100)] = Field((), description="Only these jobs.")
    q: str | None = Field(
        None, min_length=1, max_length=200, description="A job's id, the beginning of one, or your own name of a job."
    )
    name: str | None = Field(None, min_length=1, max_length=128, description="Your own name of the job.")
    status: Annotated[tuple[JobStatus, ...], Field(max_length=6), at_most(6)] = Field((), description="Any of these.")
    model: str | None = Field(None, max_length=200, description="A model's version, or its name.")
    has_failed_items: bool = Field(False, alias="failed_items", description="Only jobs of which items failed.")
    code: str | None = Field(
        None, pattern=r"^\w{1,64}$", description="Only jobs of which items failed with this code of error."
    )
    created_after: Time | None = Field(None, description="From this time on; RFC 3339 or seconds since 1970.")
    created_before: Time | None = Field(None, description="Before this time.")
    owner: str | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="The owner of the jobs, or `*` for all: for keys of scope `admin`, where keys are checked.",
    )

    @property
    def after_ms(self) -> int | None:
        """Return the earliest time of creation, in milliseconds since 1970."""
        return epoch_ms(self.created_after) if self.created_after else None

    @property
    def before_ms(self) -> int | None:
        """Return the time before which jobs were created, in milliseconds since 1970."""
        return epoch_ms(self.created_before) if self.created_before else None

    @property
    def is_empty(self) -> bool:
        """Return whether the filter matches every job of an owner."""
        return not self.given(without="owner")

    @property
    def id_beginning(self) -> str | None:
        """Return the beginning of the ids that ``q`` matches; None if ``q`` is not given."""
        return self.q and JOB_PREFIX + self.q.removeprefix(JOB_PREFIX)

    @property
    def wanted_name(self) -> str | None:
        """Return the name that a job must have, unless ``q`` matches its id."""
        return self.name if self.name is not None else self.q

    def given(self, *, without: str = "") -> dict[str, Any]:
        """Return the fields that were given, in the wire format."""
        fields = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return {name: value for name, value in fields.items() if name != without}

    def take(self, job: JobFacts) -> bool:
        """Return whether a job matches; its owner is not checked."""
        return (
            (not self.id or job.id in self.id)
            and (self.q is None or self._is_asked_for(job))
            and (self.name is None or self.name == job.name)
            and (not self.status or job.status in self.status)
            and (self.model is None or self.model in (job.version, job.version.partition("@")[0]))
            and (not self.has_failed_items or job.failed > 0)
            and (self.code is None or job.has_code)
            and (self.after_ms is None or job.created_ms >= self.after_ms)
            and (self.before_ms is None or job.created_ms < self.before_ms)
        )

    def _is_asked_for(self, job: JobFacts) -> bool:
        if self.q is not None and is_job_id(self.q):
            return job.id == self.q
        return job.name == self.q or job.id.startswith(self.id_beginning or "")
