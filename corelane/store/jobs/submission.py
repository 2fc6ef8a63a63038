"""A job before it exists: what is submitted, and the state of the fleet at its admission. Plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from corelane.domain.dispatch import PUBLIC
from corelane.domain.forecast import NO_RESIDUALS, Own, Residuals
from corelane.domain.ids import new_job_id
from corelane.domain.jobs import Item, JobHead
from corelane.domain.pauses import NO_PAUSES, Pause, Pauses
from corelane.domain.request_facts import NO_REQUEST, RequestFacts
from corelane.store.jobs.idempotency import Once


@dataclass(frozen=True, slots=True)
class ItemFile:
    """The items of a large job, in a file under the files' root: one row a line.

    If ``results_window`` is given, items are fed only while fewer results than that wait to be dropped.
    """

    name: str
    items: int
    tokens: int
    results_window: int | None = None


@dataclass(slots=True)
class Submission:
    """A job that is to be submitted. Its items are given here, or are in a file already. Do not change one."""

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
    #: Where its items are read from, instead of ``items`` and ``file``.
    input_url: str | None = None
    #: The listener of the API process whose caller waits for it. It is sent the result too, if the job has one item.
    tell: str = ""
    request: RequestFacts = NO_REQUEST

    @property
    def total(self) -> int:
        """Return the number of its items; 0 if its input was not read yet."""
        return len(self.items) if self.file is None else self.file.items


@dataclass(frozen=True, slots=True)
class Admission:
    """The state of the fleet when a job arrives.

    ``owed`` are outstanding tokens, ``unfed`` the tokens still in files, by owner and priority. ``open_jobs``
    are by priority; so is ``own``, the waiting work of the job's owner.
    """

    version: str | None
    owed: Mapping[tuple[str, int], int]
    unfed: Mapping[tuple[str, int], int]
    speeds: Sequence[float]
    open_jobs: Sequence[int]
    #: Whether a living core holds the version.
    is_held: bool = True
    own: Sequence[Own] = (Own(), Own(), Own())
    #: Living cores that hold the version and have no work.
    idle: int = 0
    #: The errors of recent forecasts for the version.
    residuals: Residuals = NO_RESIDUALS
    #: All pauses, and the one that holds this job up.
    pauses: Pauses = NO_PAUSES
    pause: Pause | None = None
