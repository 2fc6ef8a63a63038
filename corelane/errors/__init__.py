"""The errors: every failure Corelane foresees is one of these classes.

``code`` is stable and public: it appears in problem documents, item errors, logs and metrics. ``retryable`` says
whether the same call can succeed later without being changed.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar


class CorelaneError(Exception):
    """A defect in Corelane: the service's log says what. Each foreseen error is a subclass with a code of its own."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init_subclass__(cls, *, code: str = "", retryable: bool = False) -> None:
        cls.code, cls.retryable = code or cls.code, retryable or cls.retryable

    @property
    def detail(self) -> str:
        """Return the sentence that the caller sees."""
        return str(self)


class InvalidInput(CorelaneError, code="invalid_input"):
    """Change the request: `errors` lists where and why, with the nearest right name."""


class NotJson(InvalidInput, code="bad_request"):
    """The body cannot be read: send JSON with `Content-Type: application/json`, packed by gzip or not at all."""


class TooLarge(InvalidInput, code="too_large"):
    """More bytes, items, characters or brackets than allowed: send several jobs, or lines (`application/x-ndjson`)."""


class UnknownModel(InvalidInput, code="unknown_model"):
    """No such model, version or alias, or it is being unloaded; `GET /v1/models` lists what there is."""


class VersionInUse(InvalidInput, code="version_in_use"):
    """An alias or waiting work needs the version: move that first, or use `force`."""


class VersionNotReady(InvalidInput, code="version_not_ready", retryable=True):
    """No living core holds the version: load it, or ask for another; `GET /v1/cores` says how far it is."""


class WebhookRefused(InvalidInput, code="webhook_refused"):
    """The webhook's address is no https URL of a public host, or there is no secret to sign with."""


class UrlRefused(InvalidInput, code="url_refused"):
    """An `input_url`, `output_url` or file's URL of an item begins with none that the operator allows."""


class IdempotencyKeyReused(InvalidInput, code="idempotency_key_reused"):
    """The key came with another body in the last 24 hours: send that body, or use a new key."""


class NameTaken(InvalidInput, code="name_taken"):
    """A job of this name was made from another body: use another name, or delete it first."""


class SecretInUse(InvalidInput, code="secret_in_use"):
    """Rotate the webhook secret that is there instead of making another; remove those that end first."""


class NotFinal(InvalidInput, code="not_final", retryable=True):
    """This can be done only once the job is final: wait for it, or cancel it."""


class NothingToRetry(InvalidInput, code="nothing_to_retry"):
    """Every item of the job was answered, or would fail again: change it and send it as a new job."""


class HostRefused(InvalidInput, code="host_refused"):
    """The service has no such host name; the operator sets the names in `CORELANE_ALLOWED_HOSTS`."""


class BodyTooSlow(InvalidInput, code="body_too_slow", retryable=True):
    """The body stopped coming before its end, and nothing was stored: send it again."""


class WrongTask(InvalidInput, code="wrong_task"):
    """Items of one task were sent to a model of another; `detail` shows an item of the model's task."""


class NotCalibrated(InvalidInput, code="not_calibrated"):
    """`min_precision` needs a calibrated model: ask without it, or run `corelane calibrate`."""


class PrecisionOutOfReach(NotCalibrated, code="precision_out_of_reach"):
    """No score of the model reaches this `min_precision`; `detail` has the highest that one does."""


class QuestionTooLong(InvalidInput, code="question_too_long"):
    """The question leaves no room for its text in the model's window: shorten it."""


class TextTooLong(InvalidInput, code="text_too_long"):
    """The text is longer than the model reads at once: shorten it, or read it in windows (`long`)."""


class TooManyWindows(InvalidInput, code="too_many_windows"):
    """The text takes more windows than one item may: cut it into several items, or raise the bound named."""


class Unauthorized(CorelaneError, code="unauthorized"):
    """The request has no API key, or one that is unknown, revoked or expired: send `Authorization: Bearer clk_…`."""


class Forbidden(CorelaneError, code="forbidden"):
    """The API key lacks the scope for this (`submit`, `read` or `admin`): ask the operator for another."""


class NotFound(CorelaneError, code="not_found"):
    """There is no such object, it was deleted, or its time is long over."""


class JobExpired(CorelaneError, code="job_expired"):
    """The time for which the job was kept is over, or it was deleted: send its items again with a new key."""


class ResultsDropped(CorelaneError, code="results_dropped"):
    """These results were read and dropped; `results_from` of the job says where the others begin."""


class Unavailable(CorelaneError, code="unavailable", retryable=True):
    """Nothing was stored: try again later."""


class Overloaded(Unavailable, code="overloaded"):
    """Too much work waits already and nothing was stored: come back after `Retry-After`."""

    def __init__(self, detail: str, retry_after_s: int) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class RateLimited(Overloaded, code="rate_limited"):
    """Too many requests in a time: come back after `Retry-After`; `RateLimit` says where you stand."""


class NotReady(Unavailable, code="not_ready"):
    """No worker has announced a model yet, or no living core holds the default; `GET /v1/cores` says why."""


class NotInTime(Unavailable, code="not_in_time"):
    """The answer takes longer than you may wait: send the same request again within 30 s, or submit a job."""


class StoreUnavailable(Unavailable, code="store_unavailable"):
    """Redis does not reply, and nothing was stored."""


class NotReplicated(StoreUnavailable, code="not_replicated"):
    """It was written, but too few replicas hold it: send it again with the same `Idempotency-Key` or name."""


class StoreFull(Unavailable, code="store_full"):
    """Redis' memory or disk is full and takes no new work: delete final jobs that were read, or raise its limit."""

    retry_after_s = 30


class StorageFailed(Unavailable, code="storage_failed"):
    """The disk or bucket that keeps files is full, missing or does not reply, and nothing was stored."""


class ServiceUnreachable(Unavailable, code="service_unreachable"):
    """No Corelane replies at the address: start one with `corelane serve`."""


class ServiceError(CorelaneError, code="service_error"):
    """The service answered with a problem; ``problem_code`` is its code."""

    def __init__(self, detail: str, *, status: int, problem_code: str) -> None:
        super().__init__(detail)
        self.status = status
        self.problem_code = problem_code


class SignatureRefused(CorelaneError, code="signature_refused"):
    """No signature of the webhook is valid: the secret, the bytes or the clock differ from the service's."""


class EngineError(CorelaneError, code="engine_error"):
    """Something failed between tokens and results."""


class ArtifactRefused(EngineError, code="artifact_refused"):
    """The compiled model is missing, damaged, or for another target: compile it again."""


class LoadFailed(EngineError, code="load_failed"):
    """The artifact is sound but the device did not take it, most often for lack of memory."""


class RunFailed(EngineError, code="run_failed"):
    """The model failed on this item alone; its neighbours were run again without it."""


class OutputTooLarge(EngineError, code="output_too_large"):
    """The output of one item is larger than `CORELANE_MAX_OUTPUT_BYTES`: return less, or raise it."""


class RuntimeLost(EngineError, code="runtime_lost", retryable=True):
    """The runtime cannot be used in this process any more; ``environment`` has variables for the next process."""

    def __init__(self, detail: str, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(detail)
        self.environment = dict(environment)


class CoreBusy(RuntimeLost, code="core_busy"):
    """Another process holds the core; a new process tries again after growing pauses."""


class CoreLost(EngineError, code="core_lost", retryable=True):
    """The accelerator core is out of service: replace the instance, or restart the worker."""


class WorkerLost(CorelaneError, code="worker_lost"):
    """`CORELANE_MAX_ATTEMPTS` workers in a row were lost over this item; the error says how the last one ended."""


class ItemsLost(CorelaneError, code="items_lost"):
    """The file that a large job is fed from is gone: send what was not answered again."""


class InputFailed(CorelaneError, code="input_failed"):
    """A job's input, or a file that an item names, could not be read: mend it, and retry the job."""


class OutputFailed(CorelaneError, code="output_failed"):
    """A job's results could not be written to their URL; they can still be read from the service."""


class CompileFailed(CorelaneError, code="compile_failed"):
    """The compiler could not make a sound artifact."""


class ModelRefused(CompileFailed, code="model_refused"):
    """The model cannot be compiled at all: its architecture, head or tokenizer is not supported."""


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
