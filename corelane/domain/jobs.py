"""Jobs: the wire format, and the rules that need no Redis.

The wire format is stable from version 1 on: fields may be added, but none is removed or changes its meaning.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, field_validator, model_validator

from corelane.domain.job_references import MAX_URL_CHARS, JobEvent, JobInput, JobOutput, JobUrls
from corelane.domain.options import IN_OPTIONS, Options
from corelane.domain.timing import JobTiming
from corelane.domain.usage import Usage
from corelane.domain.wire import OBJECT_IN_PIECES, Entry, Wire, at_most


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
        """Return whether it cannot change any more."""
        return str(self) not in ("queued", "running")


class Priority(StrEnum):
    """The lane that a job waits in; every eighth claim begins with the lowest, so that none starves."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    @property
    def rank(self) -> int:
        """Return its place in a lane's name: 0 goes first."""
        return _PRIORITIES.index(self)


_PRIORITIES = tuple(Priority)


def _is_none(value: object) -> bool:
    return value is None


def _is_off(value: object) -> bool:
    return not value


def not_blank(text: str) -> str:
    """Return the text; raise ValueError if it is only white space."""
    if not text.strip():
        raise ValueError("must hold more than white space")
    return text


Text = Annotated[str, Field(min_length=1), AfterValidator(not_blank)]


#: Longest id that a caller may give, in characters.
MAX_ID = 256


def as_text(value: Any) -> Any:
    """Return an id as text: data sets number their rows, so a whole number becomes its digits."""
    # type(): True is an int to isinstance().
    return str(value) if type(value) is int else value


#: An id that a caller gives.
CallersId = Annotated[str, Field(max_length=MAX_ID), BeforeValidator(as_text, json_schema_input_type=str | int)]


class Item(Entry):
    """One question about one passage."""

    id: CallersId | None = Field(None, description="The caller's own id, returned with the result.")
    question: str = Field(min_length=1, description="The question.")
    context: str | None = Field(None, min_length=1, description="The passage the answer is taken from, of any length.")
    context_id: CallersId | None = Field(
        None,
        min_length=1,
        description="In place of `context`: one of the job's `contexts`, or a stored one (`ctx_…`).",
    )

    @field_validator("question", "context")
    @classmethod
    def _not_blank(cls, value: str | None) -> str | None:
        return not_blank(value) if value is not None else None

    @model_validator(mode="after")
    def _one_context(self) -> Self:
        if (self.context is None) == (self.context_id is None):
            raise ValueError("give a `context`, or the `context_id` of one of the job's `contexts` or of a stored one")
        return self


#: A word that a caller gives jobs, to list them by.
Label = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._:-]+$")]

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
    """All of a job but its items."""

    hints: ClassVar[Mapping[str, str]] = IN_OPTIONS
    output_url: str | None = Field(
        None,
        max_length=MAX_URL_CHARS,
        description="Where the results are written as lines (NDJSON) once the job is final: an `s3` URL, or an `https` "
        "URL that takes a PUT. The service allows certain beginnings only.",
    )
    contexts: Annotated[dict[Annotated[str, Field(min_length=1, max_length=256)], Text], OBJECT_IN_PIECES] | None = (
        Field(
            None, description="Passages that several items share, by ids of your own; items name them by `context_id`."
        )
    )
    model: str = Field("default", min_length=1, max_length=200, description="A model version, name or alias.")
    sticky_key: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="Where `model` is an alias of several versions: jobs of one API key with the same key here get the "
        "same version while the weights stay. Without it each job is on its own.",
    )
    options: Options = Field(default_factory=Options, description="How the items are answered.")
    priority: Priority = Field(Priority.NORMAL, description="Jobs of higher priority are answered first.")
    expires_in_s: float | None = Field(
        None,
        gt=0,
        le=30 * 24 * 3600,
        description="After this many seconds nothing more of the job is started; what is answered stays.",
    )
    refuse_if_late: bool = Field(
        False, strict=True, description="Refuse the job if it is not expected to be done within `expires_in_s`."
    )
    metadata: Metadata = Field(default_factory=dict, description="Up to 16 texts kept with the job.")
    labels: Annotated[list[Label], Field(max_length=8), at_most(8)] = Field(
        default_factory=list, description="Words that jobs can be listed by."
    )
    keep_s: int | None = Field(
        None,
        ge=60,
        strict=True,
        description="Seconds to keep the job, its items and its results once it is final; at most, and by "
        "default, as long as the service keeps jobs.",
    )
    webhook: Webhook | None = Field(None, description="Where to post the job's final status.")
    reuse: bool = Field(
        True,
        strict=True,
        description="Whether an answer to an equal question of yours may be taken, and this one's be given to others.",
    )
    invalid_items: Literal["refuse", "fail"] | None = Field(
        None,
        description="What becomes of a job with an item that is not valid: `refuse` refuses the job and names the "
        "item, `fail` takes it and fails such items alone. By default a job is refused, but for one with an "
        "`input_url`, which is taken before its items are read.",
    )
    dry_run: bool = Field(
        False, strict=True, description="Answer with a `job.forecast` in place of the job; nothing is kept or charged."
    )

    @model_validator(mode="after")
    def _late_for_something(self) -> Self:
        if self.refuse_if_late and self.expires_in_s is None:
            raise ValueError("`refuse_if_late` needs `expires_in_s`")
        return self


class Offsets(BaseModel):
    """The same stretch in other units, each as [start, end]; only those that were asked for are there."""

    utf16: tuple[int, int] | None = Field(
        None, exclude_if=_is_none, description="UTF-16 code units: `context.slice(start, end)` in JavaScript."
    )
    bytes: tuple[int, int] | None = Field(None, exclude_if=_is_none, description="Bytes of the context in UTF-8.")


class Answer(BaseModel):
    """A stretch of the context: ``context[start:end] == text``, offsets in Unicode code points."""

    text: str
    start: int = Field(ge=0, description="First code point of the answer in the context.")
    end: int = Field(ge=0, description="One past the last code point.")
    score: float = Field(
        ge=0,
        le=1,
        description="Share of the model's belief, over all spans and `no answer`; with a calibrated model the "
        "probability that the answer is right.",
    )
    offsets: Offsets | None = Field(None, exclude_if=_is_none, description="With the option `offsets` only.")


class ItemError(BaseModel):
    """Why one item has no answer though its job ended."""

    code: str
    detail: str


class Result(BaseModel):
    """The outcome of one item."""

    index: int = Field(ge=0, description="Position of the item in its job.")
    id: str | None = Field(None, description="The caller's own id.")
    status: JobStatus
    answer: Answer | None = Field(None, description="The best answer; null if there is none in the context.")
    answers: list[Answer] = Field(default_factory=list, description="At most top_k candidates, best first.")
    no_answer_score: float | None = Field(
        None, description="Share of the model's belief that there is no answer; calibrated, the probability of it."
    )
    windows: int = Field(0, ge=0, description="Windows of the context that the model read.")
    error: ItemError | None = None
    reused: bool = Field(
        False,
        exclude_if=_is_off,
        description="Only if true: this is the result of an equal item, nothing was computed.",
    )


class ModelResult(Result):
    """A result of a bulk, whose jobs nobody looks at: it says itself who gave it."""

    model: str | None = Field(None, description="The model version that was asked; null if none was.")


class ResultList(BaseModel):
    """One page of results in item order."""

    object: Literal["list"] = "list"
    data: list[Result]
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


class Promise(BaseModel):
    """The place and finish time promised to a job when it was submitted."""

    position: int = Field(ge=0, description="Unfinished jobs of its priority or higher that it waits behind.")
    tokens_ahead: int = Field(ge=0, description="Estimated tokens that are answered before it is done.")
    finish_at: str | None = Field(
        None, description="When it was expected to be done; null until speed is measured, or if a pause held it up."
    )
    earliest_at: str | None = Field(None, description="Early end of the interval around that.")
    latest_at: str | None = Field(None, description="Late end of it.")


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
    model: str = Field(description="The model version that answers.")
    counts: Counts
    priority: Priority = Priority.NORMAL
    created_at: str
    started_at: str | None = None
    finished_at: str | None = None
    expires_at: str | None = Field(None, description="When items that have not started expire.")
    kept_until: str | None = Field(None, description="Until when a final job and its results are kept.")
    promise: Promise | None = None
    waiting_for: str | None = Field(
        None,
        description="Why an open job is not worked on: a pause, by whom and since when; or no core holds its model "
        "version now, and what is expected.",
    )
    error: ItemError | None = Field(None, description="Why the job as a whole could not go on.")
    results_from: int = Field(0, ge=0, description="Results before this item were dropped, as their reader asked.")
    retry_of: str | None = Field(None, description="The job whose unanswered items these are.")
    input: JobInput | None = Field(None, exclude_if=_is_none, description="With `input_url` only.")
    output: JobOutput | None = Field(None, exclude_if=_is_none, description="With `output_url` only.")
    failures: list[FailureCount] | None = Field(
        None, exclude_if=_is_none, description="Of items that failed: how many with each code, the most first."
    )
    owner: str | None = Field(
        None, exclude_if=_is_none, description="Its owner, where an admin looks at another owner's job."
    )
    urls: JobUrls
    options: Options
    metadata: dict[str, str] = Field(default_factory=dict)
    labels: list[str] = Field(default_factory=list)
    timing: JobTiming | None = Field(None, description="Where its time went, once it is final.")
    usage: Usage | None = Field(None, description="What it took so far; null before the first results.")
    results: list[Result] | None = Field(None, description="Inline once final, for small jobs.")


class JobList(BaseModel):
    """One page of jobs, newest first, without their results."""

    object: Literal["list"] = "list"
    data: list[Job]
    has_more: bool = Field(description="Whether more jobs may follow this page.")
    next: str | None = Field(description="Cursor of the next page.")
    first_id: str | None = Field(description="Id of the first job of the page.")
    last_id: str | None = Field(description="Id of the last job of the page.")
