"""The errors: every failure Corelane foresees is one of these classes.

``code`` is stable and public: it appears in problem documents, item errors, logs and metrics. ``retryable`` says
whether the same call can succeed later without being changed.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar


class CorelaneError(Exception):
    """An error that Corelane foresees; its text is a sentence for the person who must act."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init_subclass__(cls, *, code: str = "", retryable: bool = False) -> None:
        cls.code, cls.retryable = code or cls.code, retryable or cls.retryable

    @property
    def detail(self) -> str:
        """Return the sentence that the caller sees."""
        return str(self)


class InvalidInput(CorelaneError, code="invalid_input"):
    """The caller must change the request."""


class NotJson(InvalidInput, code="bad_request"):
    """The request says that its body is something else than JSON."""


class TooLarge(InvalidInput, code="too_large"):
    """A limit on size or count was passed."""


class UnknownModel(InvalidInput, code="unknown_model"):
    """No such model, version or alias."""


class UnknownText(InvalidInput, code="unknown_context"):
    """No stored text of this id, or no longer."""


class VersionInUse(InvalidInput, code="version_in_use"):
    """An alias or waiting work needs the version; move that first."""


class VersionNotReady(InvalidInput, code="version_not_ready", retryable=True):
    """No living core holds the version yet."""


class WebhookRefused(InvalidInput, code="webhook_refused"):
    """The webhook address is not allowed."""


class UrlRefused(InvalidInput, code="url_refused"):
    """The URL of a job's input or output is not allowed."""


class DeadlineInfeasible(InvalidInput, code="deadline_infeasible", retryable=True):
    """The job would not be done in time; carries the earliest that can be met."""

    def __init__(self, detail: str, earliest_feasible_s: int) -> None:
        super().__init__(detail)
        self.earliest_feasible_s = earliest_feasible_s


class IdempotencyKeyReused(InvalidInput, code="idempotency_key_reused"):
    """An earlier request with this key had another body."""


class NameTaken(InvalidInput, code="name_taken"):
    """A job with this name was made from another body."""


class SecretInUse(InvalidInput, code="secret_in_use"):
    """Webhook secrets do not allow this: older ones would be left, or there would be too many."""


class NotFinal(InvalidInput, code="not_final", retryable=True):
    """This can be done only once the job is final."""


class NothingToRetry(InvalidInput, code="nothing_to_retry"):
    """Every item of the job was answered."""


class HostRefused(InvalidInput, code="host_refused"):
    """The service may not be reached by that host name."""


class BodyTooSlow(InvalidInput, code="body_too_slow", retryable=True):
    """The body stopped coming before its end."""


class WrongTask(InvalidInput, code="wrong_task"):
    """Items of one task were sent to a model of another."""


class NotCalibrated(InvalidInput, code="not_calibrated"):
    """A precision was asked of a model whose scores are no probabilities."""


class PrecisionOutOfReach(NotCalibrated, code="precision_out_of_reach"):
    """A precision was asked that no score of the model reaches."""


class QuestionTooLong(InvalidInput, code="question_too_long"):
    """The question leaves no room for its text in the model's window."""


class TextTooLong(InvalidInput, code="text_too_long"):
    """The text is longer than the model reads at once, and is not to be read in windows."""


class TooManyWindows(InvalidInput, code="too_many_windows"):
    """The passage takes more windows of the model than one item may."""


class Unauthorized(CorelaneError, code="unauthorized"):
    """An API key is needed, or this one is not good (any more)."""


class Forbidden(CorelaneError, code="forbidden"):
    """The API key lacks the scope for this."""


class NotFound(CorelaneError, code="not_found"):
    """No such job."""


class JobExpired(CorelaneError, code="job_expired"):
    """The job was kept, and that time is over."""


class ResultsDropped(CorelaneError, code="results_dropped"):
    """These results were read and dropped."""


class Unavailable(CorelaneError, code="unavailable", retryable=True):
    """Try again later: nothing was kept."""


class Overloaded(Unavailable, code="overloaded"):
    """Too much work waits already; carries when to come back."""

    def __init__(self, detail: str, retry_after_s: int) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class RateLimited(Overloaded, code="rate_limited"):
    """Too many requests in a time."""


class TextsFull(Overloaded, code="contexts_full"):
    """The owner has as many stored texts as are allowed."""


class NotReady(Unavailable, code="not_ready"):
    """No worker has announced a model yet."""


class NotInTime(Unavailable, code="not_in_time"):
    """The answer takes longer than the caller may wait."""


class StoreUnavailable(Unavailable, code="store_unavailable"):
    """Redis does not reply."""


class NotReplicated(StoreUnavailable, code="not_replicated"):
    """It was written, but too few replicas hold it: it may still be lost."""


class StoreFull(Unavailable, code="store_full"):
    """Redis refuses to write. Its memory is full until results expire or are deleted, which takes a while."""

    retry_after_s = 30


class StorageFailed(Unavailable, code="storage_failed"):
    """The disk or bucket that keeps files does not do its work."""


class ServiceUnreachable(Unavailable, code="service_unreachable"):
    """No service responds at the client's address."""


class ServiceError(CorelaneError, code="service_error"):
    """The service answered with a problem; ``problem_code`` is its code."""

    def __init__(self, detail: str, *, status: int, problem_code: str) -> None:
        super().__init__(detail)
        self.status = status
        self.problem_code = problem_code


class SignatureRefused(CorelaneError, code="signature_refused"):
    """What came as a webhook was not signed by the service."""


class EngineError(CorelaneError, code="engine_error"):
    """Something failed between tokens and results."""


class ArtifactRefused(EngineError, code="artifact_refused"):
    """Missing, damaged or foreign artifact."""


class LoadFailed(EngineError, code="load_failed"):
    """The artifact is sound but the device did not take it."""


class RunFailed(EngineError, code="run_failed"):
    """One forward pass failed."""


class OutputTooLarge(EngineError, code="output_too_large"):
    """The output of one item is larger than is stored."""


class RuntimeLost(EngineError, code="runtime_lost", retryable=True):
    """The runtime cannot be used in this process any more; ``environment`` has variables for the next process."""

    def __init__(self, detail: str, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(detail)
        self.environment = dict(environment)


class CoreBusy(RuntimeLost, code="core_busy"):
    """Another process holds the core."""


class CoreLost(EngineError, code="core_lost", retryable=True):
    """The accelerator core is out of service."""


class WorkerLost(CorelaneError, code="worker_lost"):
    """An item outlived its attempts."""


class ItemsLost(CorelaneError, code="items_lost"):
    """The file that a large job is fed from is gone."""


class InputFailed(CorelaneError, code="input_failed"):
    """A job's input could not be read from its URL."""


class OutputFailed(CorelaneError, code="output_failed"):
    """A job's results could not be written to their URL."""


class CompileFailed(CorelaneError, code="compile_failed"):
    """The compiler could not make a sound artifact."""


class ModelRefused(CompileFailed, code="model_refused"):
    """The model cannot be compiled at all: the reason is in the text."""


class SetupError(CorelaneError, code="setup_error"):
    """This machine or its settings do not allow what was asked."""


def _all_classes() -> list[type[CorelaneError]]:
    classes = [CorelaneError]
    for each in classes:
        classes += each.__subclasses__()
    return classes


def error_codes() -> tuple[str, ...]:
    """Return the code of every error class in this module."""
    return tuple(sorted({each.code for each in _all_classes() if each.__module__ == __name__}))


def fails_again(code: str) -> bool:
    """Return whether an item with this error code would fail again on every retry, as the fault is in the item."""
    found = next((each for each in _all_classes() if each.code == code), CorelaneError)
    return issubclass(found, InvalidInput) and not found.retryable


def error_class(code: str) -> type[CorelaneError]:
    """Return the error class for a code; CorelaneError if there is none, or if it needs more than a sentence."""
    found = next((each for each in _all_classes() if each.code == code), CorelaneError)
    return CorelaneError if found.__init__ is not CorelaneError.__init__ else found


def first_line(error: object) -> str:
    """Return the first line of an error's text."""
    return _lines(error)[0]


def last_line(error: object) -> str:
    """Return the last line of an error's text, where torch and the compilers put the reason."""
    return _lines(error)[-1]


def _lines(error: object) -> list[str]:
    unknown = type(error).__name__ if isinstance(error, BaseException) else "no reason given"
    return str(error).strip().splitlines() or [unknown]
