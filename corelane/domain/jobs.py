"""Jobs: the wire format, and the rules that need no Redis.

The wire format is stable from version 1 on: fields may be added, but none is removed or changes its meaning.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
    model_validator,
)

from corelane.domain.job_references import MAX_URL_CHARS, JobEvent, JobInput, JobOutput, JobUrls
from corelane.domain.usage import Usage
from corelane.domain.wire import Entry, Open, Time, Wire, at_most

#: Jobs of at most this many items carry their results inline: one page of results.
INLINE_RESULTS = 100

#: The task of models and jobs that do not name one: once it was the only task.
DEFAULT_TASK = "question-answering"


class JobStatus(StrEnum):
    """The state of a job or an item. Final states never change; late updates are dropped."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    EXPIRED = "expired"

    @property
    def is_final(self) -> bool:
        """Return whether this state cannot change any more."""
        return str(self) not in ("queued", "running")


class Priority(StrEnum):
    """The lane that a job waits in; every eighth claim begins with the lowest, so that none starves."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    @property
    def rank(self) -> int:
        """Return the number of this priority in a lane's name: 0 goes first."""
        return _PRIORITIES.index(self)


_PRIORITIES = tuple(Priority)


#: Options of a field that is left out if it is null. Its schema has no default, so it is optional in a reply too.
UNLESS_NULL: Mapping[str, Any] = MappingProxyType(
    {"exclude_if": lambda value: value is None, "json_schema_extra": lambda schema: schema.pop("default", None)}
)


def not_blank(text: str) -> str:
    """Return the text; raise ValueError if it is only white space."""
    if not text.strip():
        raise ValueError("must hold more than white space")
    return text


Text = Annotated[str, Field(min_length=1), AfterValidator(not_blank)]


#: How far ahead a job's `not_before` may be, in days: as far as a job may expire.
MOST_DAYS_AHEAD = 30

#: Longest id that a caller may give, in characters.
MAX_ID = 256


def as_text(value: Any) -> Any:
    """Return an id as text: data sets number their rows, so a whole number becomes its digits."""
    # type(): True is an int to isinstance().
    return str(value) if type(value) is int else value


#: An id that a caller gives.
CallersId = Annotated[str, Field(max_length=MAX_ID), BeforeValidator(as_text, json_schema_input_type=str | int)]


#: An item's id must differ from those of this many items before it. Up to twice as many ids are kept.
COMPARED_IDS = 10_000


class EarlierIds:
    """The ids of the last items of a job, of which there may be millions."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}
        self._older: dict[str, str] = {}

    def first(self, item_id: str, place: str) -> str | None:
        """Return the place of the earlier item with this id; if there is none, keep ``place`` and return None."""
        if (before := self._older.get(item_id)) is None and (before := self._places.get(item_id)) is None:
            if len(self._places) == COMPARED_IDS:
                self._older, self._places = self._places, {}
            self._places[item_id] = place
        return before


def same_id(item_id: str, before: str) -> str:
    """Return the end of the sentence about an item that has the id of an earlier one."""
    return f"has the id {item_id[:64]!r} of {before}: give each item an id of its own, or none"


def no_text(name: str) -> str:
    """Return the sentence about an item that names a text which its job does not share."""
    return f"there is no {name[:64]!r} in the job's `contexts`"


class Item(Entry):
    """One item of a job; each task adds the fields of its items (``corelane.tasks``)."""

    id: CallersId | None = Field(None, description="The caller's own id, returned with the result.")

    @classmethod
    def fields_in_place(cls) -> Mapping[str, Any]:
        """Return the fields that a request with one item may have in place of `items`."""
        return cls.model_fields

    @property
    def files(self) -> Sequence[str]:
        """Return the URLs and ids of the files that the item names."""
        return ()


class TaskOptions(Wire):
    """The options of a job; each task adds options of its own."""

    #: The name of the task that these options belong to.
    task: ClassVar[str] = DEFAULT_TASK
    #: The class of the items, if the version that is asked has one of its own.
    form: ClassVar[type[Item] | None] = None
    #: Options that workers of the previous version do not know. They are stored only if they are used.
    added: ClassVar[frozenset[str]] = frozenset()

    def by_name(self) -> dict[str, Any]:
        """Return the options by name."""
        return vars(self).copy()

    def stored(self) -> dict[str, Any]:
        """Return the options to store: those in ``added`` only if they differ from their default."""
        fields = type(self).model_fields
        given = vars(self).items()
        return {name: value for name, value in given if name not in self.added or value != fields[name].default}

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        """Read options in stored form; raise ValueError."""
        return cls.model_validate(stored)


class GivenOptions(Open):
    """The options of a job in a reply: the fields of its task's options."""


#: Texts that a caller gives, which are stored.
Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16), at_most(16)
]


class Webhook(Wire):
    """The URL that a job's events are posted to, signed by the Standard Webhooks scheme."""

    url: str = Field(min_length=8, max_length=2048, pattern=r"^https?://", description="The receiver, http or https.")
    events: Annotated[tuple[JobEvent, ...], Field(min_length=1, max_length=7), at_most(7)] = Field(
        ("job.completed",),
        description="Events that are posted, each once and by an id of its own; `job.completed` is any final status.",
    )


class JobHead(Wire):
    """A job without its items; each task has a class of its own (``tasks.forms``)."""

    output_url: str | None = Field(
        None,
        max_length=MAX_URL_CHARS,
        description="Where the results are written as lines (NDJSON) once the job is final: an `s3` URL, or an `https` "
        "URL that takes a PUT. The service allows certain beginnings only.",
    )
    model: str = Field("default", min_length=1, max_length=200, description="A model version, name or alias.")
    sticky_key: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="Where `model` is an alias of several versions: jobs of one API key with the same key here get the "
        "same version while the weights stay. Without it each job is on its own.",
    )
    options: TaskOptions = Field(default_factory=TaskOptions, description="How the items are answered.")
    priority: Priority = Field(Priority.NORMAL, description="Jobs of higher priority are answered first.")
    expires_in_s: float | None = Field(
        None,
        gt=0,
        le=30 * 24 * 3600,
        description="After this many seconds nothing more of the job is started; what is answered stays.",
    )
    not_before: Time | None = Field(
        None, description="When the job may begin, at most 30 days ahead; RFC 3339 or seconds since 1970."
    )
    metadata: Metadata = Field(default_factory=dict, description="Up to 16 texts kept with the job.")
    keep_s: int | None = Field(
        None,
        ge=60,
        strict=True,
        description="Seconds to keep the job, its items and its results once it is final; at most, and by "
        "default, as long as the service keeps jobs.",
    )
    webhook: Webhook | None = Field(None, description="Where to post the job's final status.")
    invalid_items: Literal["refuse", "fail"] | None = Field(
        None,
        description="What becomes of a job with an item that is not valid: `refuse` refuses the job and names the "
        "item, `fail` takes it and fails such items alone. By default a job is refused, but for one with an "
        "`input_url`, which is taken before its items are read.",
    )

    @field_validator("not_before")
    @classmethod
    def _comes_in_time(cls, not_before: datetime | None, info: ValidationInfo) -> datetime | None:
        """Refuse a time too far ahead, or at which the job would have expired. One that has come asks for nothing."""
        now, expires_in_s = datetime.now(UTC), info.data.get("expires_in_s")
        ahead = (not_before or now) - now
        if ahead > timedelta(days=MOST_DAYS_AHEAD):
            raise ValueError(f"is at most {MOST_DAYS_AHEAD} days ahead: name an earlier time, or send the job later")
        if expires_in_s is not None and timedelta(seconds=expires_in_s) <= ahead:
            raise ValueError("comes after the job expires: let `expires_in_s`, which counts from now, be longer")
        return not_before if ahead > timedelta() else None

    @property
    def shared_texts(self) -> Mapping[str, str]:
        """Return the texts that the job's items share, by id. Tasks with shared texts have a field for the texts."""
        return {}


class ItemError(BaseModel):
    """Why one item failed or has no output though its job ended."""

    code: str
    detail: str


#: The fields that follow those of the task in every result.
WINDOWS = Field(0, ge=0, description="Windows of the text that the model read.")
ERROR = Field(None, description="Why the item failed.")


class Result(BaseModel):
    """The outcome of one item; each task adds the fields of its output.

    Data validated as a ``Result`` become the result of the task whose ``mark`` is among their fields.
    """

    model_config = ConfigDict(extra="allow")

    #: The class of each task's results, by its ``mark``.
    forms: ClassVar[dict[str, type["Result"]]] = {}
    #: The name of a field that only the results of this task have.
    mark: ClassVar[str] = ""

    index: int = Field(ge=0, description="Position of the item in its job.")
    id: str | None = Field(None, description="The caller's own id.")
    status: JobStatus

    if TYPE_CHECKING:
        windows: int
        error: ItemError | None

        def __getattr__(self, name: str) -> Any: ...

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        if cls.mark:
            Result.forms.setdefault(cls.mark, cls)

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_task(cls, value: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        if cls is not Result or not isinstance(value, dict):
            return validate(value)
        form = next((form for mark, form in cls.forms.items() if mark in value), None)
        return validate(value) if form is None else cast(Self, form.model_validate(value))


class ResultList(BaseModel):
    """One page of results in item order."""

    object: Literal["list"] = "list"
    data: list[SerializeAsAny[Result]]
    has_more: bool = Field(description="Whether items follow this page, answered yet or not.")
    next: str | None = Field(description="Cursor of the next page.")


class Counts(BaseModel):
    """Items of a job by outcome."""

    total: int
    succeeded: int = 0
    failed: int = 0
    canceled: int = 0
    expired: int = 0

    @property
    def done(self) -> int:
        """Return the number of items whose status is final."""
        return self.succeeded + self.failed + self.canceled + self.expired


class FailureCount(BaseModel):
    """The number of items that failed with one code of error."""

    code: str
    count: int
    retryable: bool = Field(description="Whether asking again may succeed; a retry leaves the others out.")


class Job(BaseModel):
    """One submission and how far it has come."""

    object: Literal["job"] = "job"
    id: str
    name: str | None = Field(None, description="The caller's own name of it, if it was made by one.")
    status: JobStatus
    model: str = Field(description="The model version that is asked.")
    task: str = Field(DEFAULT_TASK, description="The task of that model: what its items, options and results are.")
    counts: Counts
    priority: Priority = Priority.NORMAL
    created_at: str
    started_at: str | None = None
    finished_at: str | None = None
    not_before: str | None = Field(None, description="The time before which nothing of it is started.")
    expires_at: str | None = Field(None, description="When items that have not started expire.")
    kept_until: str | None = Field(None, description="Until when a final job and its results are kept.")
    waiting_for: str | None = Field(
        None,
        description="Why an open job is not worked on: its `not_before` has not come; a pause, by whom and since when; "
        "or no core holds its model version now, and what is expected.",
    )
    error: ItemError | None = Field(None, description="Why the job as a whole could not go on.")
    results_from: int = Field(0, ge=0, description="Results before this item were dropped, as their reader asked.")
    retry_of: str | None = Field(None, description="The job whose unanswered items these are.")
    input: JobInput | None = Field(None, **UNLESS_NULL, description="With `input_url` only.")
    output: JobOutput | None = Field(None, **UNLESS_NULL, description="With `output_url` only.")
    failures: list[FailureCount] | None = Field(
        None, **UNLESS_NULL, description="Of items that failed: how many with each code, the most first."
    )
    owner: str | None = Field(
        None, **UNLESS_NULL, description="Its owner, where an admin looks at another owner's job."
    )
    urls: JobUrls
    options: GivenOptions
    metadata: dict[str, str] = Field(default_factory=dict)
    usage: Usage | None = Field(None, description="What it took so far; null before the first results.")
    results: list[SerializeAsAny[Result]] | None = Field(None, description="Inline once final, for small jobs.")


class JobList(BaseModel):
    """One page of jobs, newest first, without their results."""

    object: Literal["list"] = "list"
    data: list[Job]
    has_more: bool = Field(description="Whether more jobs may follow this page.")
    next: str | None = Field(description="Cursor of the next page.")
    first_id: str | None = Field(description="Id of the first job of the page.")
    last_id: str | None = Field(description="Id of the last job of the page.")
