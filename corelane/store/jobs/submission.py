"""A job before it exists: what is submitted, and the state of the fleet that it is admitted to. Plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from corelane.domain.contexts import Known
from corelane.domain.dispatch import PUBLIC
from corelane.domain.forecast import NO_RESIDUALS, Own, Residuals, Speed
from corelane.domain.ids import new_job_id
from corelane.domain.jobs import Item, JobHead
from corelane.domain.pauses import NO_PAUSES, Pause, Pauses
from corelane.domain.request_context import NO_CONTEXT, RequestContext
from corelane.store.jobs.idempotency import Once


@dataclass(frozen=True, slots=True)
class ItemFile:
    """The items of a large job, in a file under the files' root: one row a line.

    Items are fed only while fewer results than ``results_window`` wait to be dropped, if it is given.
    """

    name: str
    items: int
    tokens: int
    results_window: int | None = None


@dataclass(slots=True)
class Submission:
    """A job that is asked for. Its items are given here, or stand in a file already. Nobody changes it."""

    head: JobHead
    owner: str = PUBLIC
    items: Sequence[Item] = ()
    file: ItemFile | None = None
    id: str = field(default_factory=new_job_id)
    name: str | None = None
    retry_of: str | None = None
    #: The model that the retried job asked for, where ``head`` names its version.
    asked: str = ""
    once: Once | None = None
    #: Where its items are read from, in place of ``items`` and ``file``.
    input_url: str | None = None
    #: Whether its caller waits for it: then its end is published with its result, if it has one item.
    is_awaited: bool = False
    #: The stored contexts that its items name and the job does not carry, by their ids.
    known: Mapping[str, Known] = field(default_factory=dict)
    request: RequestContext = NO_CONTEXT

    @property
    def total(self) -> int:
        """Return how many items it has, as far as that is known."""
        return len(self.items) if self.file is None else self.file.items


@dataclass(frozen=True, slots=True)
class Admission:
    """The state of the fleet as a job arrives: outstanding tokens and those still in files, by owner and priority;
    speeds; open jobs by priority; what waits of the owner who asks, by priority.
    """

    version: str | None
    owed: Mapping[tuple[str, int], int]
    unfed: Mapping[tuple[str, int], int]
    speeds: Sequence[Speed]
    open_jobs: Sequence[int]
    #: Whether a living core holds the version.
    is_held: bool = True
    own: Sequence[Own] = (Own(), Own(), Own())
    #: Living cores that hold the version and have no work.
    idle: int = 0
    #: How far off the forecasts for the version were recently.
    residuals: Residuals = NO_RESIDUALS
    #: What is paused; and what of it holds this job up.
    pauses: Pauses = NO_PAUSES
    pause: Pause | None = None
