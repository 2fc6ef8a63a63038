"""A job before it exists: what is submitted, and the state of the fleet at its admission. Plain data."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from corelane.domain.dispatch import PUBLIC
from corelane.domain.ids import new_job_id
from corelane.domain.jobs import Item, JobHead
from corelane.domain.pauses import Pause
from corelane.domain.request_facts import NO_REQUEST, RequestFacts
from corelane.store.jobs.idempotency import Once


@dataclass(frozen=True, slots=True)
class ItemFile:
    """The items of a large job, in a file under the files' root: one row a line."""

    name: str
    items: int
    tokens: int


@dataclass(slots=True)
class Submission:
    """A job that is to be submitted. Its items are given here, or are in a file already. Do not change a submission."""

    head: JobHead
    owner: str = PUBLIC
    items: Sequence[Item] = ()
    file: ItemFile | None = None
    id: str = field(default_factory=new_job_id)
    name: str | None = None
    retry_of: str | None = None
    #: The model that the retried job asked for, if ``head`` names the version.
    asked: str = ""
    once: Once | None = None
    #: The URL that the job's items are read from, instead of ``items`` and ``file``.
    input_url: str | None = None
    #: The listener in the API process whose caller waits for this job. It also gets the result of a job of one item.
    tell: str = ""
    request: RequestFacts = NO_REQUEST

    @property
    def total(self) -> int:
        """Return the number of the job's items; 0 if the input was not read yet."""
        return len(self.items) if self.file is None else self.file.items


class Assumed(TypedDict):
    """What must hold for a job that has no admission of its own: its model means its version alone, and it fits."""

    model: str
    tokens: int
    #: Most tokens that are not done, of all owners and of this one.
    most: int
    own_most: int


@dataclass(frozen=True, slots=True)
class Admission:
    """The state of the fleet when a job arrives; ``outstanding`` tokens are not done, ``own`` of them its owner's."""

    version: str | None
    outstanding: int
    own: int
    #: Whether a living core holds the version.
    is_held: bool = True
    #: Living cores that hold the version and have no work.
    idle: int = 0
    #: The pause that holds this job up.
    pause: Pause | None = None
    #: Whether the model means no other version.
    is_alone: bool = False
    #: Whether this was read for an earlier job: the store checks it again as it takes the job.
    is_assumed: bool = False
