"""The error tree. Every failure Corelane foresees is one of these classes.

    CorelaneError
    ├── InvalidInput            the caller must change the request
    │   ├── NotJson             the request says that its body is something else than JSON
    │   ├── TooLarge            a limit on size or count was passed
    │   ├── UnknownModel        no such model, version or alias
    │   ├── UnknownText         no stored text of this id, or no longer
    │   ├── WebhookRefused      the webhook address is not allowed
    │   ├── UrlRefused          the URL of a job's input or output is not allowed
    │   ├── VersionInUse        an alias or waiting work needs the version; move that first
    │   ├── VersionNotReady     no living core holds the version yet
    │   ├── DeadlineInfeasible  the job would not be done in time; carries the earliest that can be met
    │   ├── IdempotencyKeyReused  an earlier request with this key had another body
    │   ├── NameTaken           a job with this name was made from another body
    │   ├── SecretInUse         webhook secrets do not allow this: older ones would be left, or there would be too many
    │   ├── NotFinal            this can be done only once the job is final
    │   ├── NothingToRetry      every item of the job was answered
    │   ├── HostRefused         the service may not be reached by that host name
    │   ├── BodyTooSlow         the body stopped coming before its end
    │   ├── WrongTask           items of one task were sent to a model of another
    │   ├── NotCalibrated       a precision was asked of a model whose scores are no probabilities
    │   │   └── PrecisionOutOfReach  a precision was asked that no score of the model reaches
    │   ├── QuestionTooLong     the question leaves no room for its text in the model's window
    │   ├── TextTooLong         the text is longer than the model reads at once, and is not to be read in windows
    │   └── TooManyWindows      the passage takes more windows of the model than one item may
    ├── Unauthorized            an API key is needed, or this one is not good (any more)
    ├── Forbidden               the API key lacks the scope for this
    ├── NotFound                no such job
    ├── JobExpired              the job was kept, and that time is over
    ├── ResultsDropped          these results were read and dropped
    ├── Unavailable             try again later: nothing was kept
    │   ├── Overloaded          too much work waits already; carries when to come back
    │   │   ├── RateLimited     too many requests in a time
    │   │   └── TextsFull       the owner has as many stored texts as are allowed
    │   ├── NotReady            no worker has announced a model yet
    │   ├── StoreUnavailable    Redis does not reply
    │   │   └── NotReplicated   it was written, but too few replicas hold it: it may still be lost
    │   ├── StoreFull           Redis refuses to write
    │   ├── StorageFailed       the disk or bucket that keeps files does not do its work
    │   └── ServiceUnreachable  no service responds at the client's address
    ├── ServiceError            the service answered the client with a problem
    ├── SignatureRefused        what came as a webhook was not signed by the service
    ├── EngineError             something failed between tokens and results
    │   ├── ArtifactRefused     missing, damaged or foreign artifact
    │   ├── LoadFailed          the artifact is sound but the device did not take it
    │   ├── RunFailed           one forward pass failed
    │   ├── RuntimeLost         the accelerator's runtime is of no more use in this process; a new one may go on
    │   │   └── CoreBusy        another process holds the core
    │   └── CoreLost            the accelerator core is out of service
    ├── WorkerLost              an item outlived its attempts
    ├── ItemsLost               the file that a large job is fed from is gone
    ├── InputFailed             a job's input could not be read from its URL
    ├── OutputFailed            a job's results could not be written to their URL
    ├── CompileFailed           the compiler could not make a sound artifact
    │   └── ModelRefused        the model cannot be compiled at all: the reason is in the text
    └── SetupError              this machine or its settings do not allow what was asked

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

    @property
    def detail(self) -> str:
        """Return the sentence that the caller sees."""
        return str(self)


class InvalidInput(CorelaneError):
    code = "invalid_input"


class NotJson(InvalidInput):
    code = "bad_request"


class TooLarge(InvalidInput):
    code = "too_large"


class UnknownModel(InvalidInput):
    code = "unknown_model"


class UnknownText(InvalidInput):
    code = "unknown_context"


class VersionInUse(InvalidInput):
    code = "version_in_use"


class VersionNotReady(InvalidInput):
    code = "version_not_ready"
    retryable = True


class WebhookRefused(InvalidInput):
    code = "webhook_refused"


class UrlRefused(InvalidInput):
    code = "url_refused"


class DeadlineInfeasible(InvalidInput):
    code = "deadline_infeasible"
    retryable = True

    def __init__(self, detail: str, earliest_feasible_s: int) -> None:
        super().__init__(detail)
        self.earliest_feasible_s = earliest_feasible_s


class IdempotencyKeyReused(InvalidInput):
    code = "idempotency_key_reused"


class NameTaken(InvalidInput):
    code = "name_taken"


class SecretInUse(InvalidInput):
    code = "secret_in_use"


class NotFinal(InvalidInput):
    code = "not_final"
    retryable = True


class NothingToRetry(InvalidInput):
    code = "nothing_to_retry"


class HostRefused(InvalidInput):
    code = "host_refused"


class BodyTooSlow(InvalidInput):
    code = "body_too_slow"
    retryable = True


class WrongTask(InvalidInput):
    code = "wrong_task"


class NotCalibrated(InvalidInput):
    code = "not_calibrated"


class PrecisionOutOfReach(NotCalibrated):
    code = "precision_out_of_reach"


class QuestionTooLong(InvalidInput):
    code = "question_too_long"


class TextTooLong(InvalidInput):
    code = "text_too_long"


class TooManyWindows(InvalidInput):
    code = "too_many_windows"


class Unauthorized(CorelaneError):
    code = "unauthorized"


class Forbidden(CorelaneError):
    code = "forbidden"


class NotFound(CorelaneError):
    code = "not_found"


class JobExpired(CorelaneError):
    code = "job_expired"


class ResultsDropped(CorelaneError):
    code = "results_dropped"


class Unavailable(CorelaneError):
    code = "unavailable"
    retryable = True


class Overloaded(Unavailable):
    code = "overloaded"

    def __init__(self, detail: str, retry_after_s: int) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class RateLimited(Overloaded):
    code = "rate_limited"


class TextsFull(Overloaded):
    code = "contexts_full"


class NotReady(Unavailable):
    code = "not_ready"


class StoreUnavailable(Unavailable):
    code = "store_unavailable"


class NotReplicated(StoreUnavailable):
    code = "not_replicated"


class StoreFull(Unavailable):
    code = "store_full"


class StorageFailed(Unavailable):
    code = "storage_failed"


class ServiceUnreachable(Unavailable):
    code = "service_unreachable"


class ServiceError(CorelaneError):
    """The service answered with a problem; ``problem_code`` is its code."""

    code = "service_error"

    def __init__(self, detail: str, *, status: int, problem_code: str) -> None:
        super().__init__(detail)
        self.status = status
        self.problem_code = problem_code


class SignatureRefused(CorelaneError):
    code = "signature_refused"


class EngineError(CorelaneError):
    code = "engine_error"


class ArtifactRefused(EngineError):
    code = "artifact_refused"


class LoadFailed(EngineError):
    code = "load_failed"


class RunFailed(EngineError):
    code = "run_failed"


class RuntimeLost(EngineError):
    """The runtime cannot be used in this process any more; ``environment`` has variables for the next process."""

    code = "runtime_lost"
    retryable = True

    def __init__(self, detail: str, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(detail)
        self.environment = dict(environment)


class CoreBusy(RuntimeLost):
    code = "core_busy"


class CoreLost(EngineError):
    code = "core_lost"
    retryable = True


class WorkerLost(CorelaneError):
    code = "worker_lost"


class ItemsLost(CorelaneError):
    code = "items_lost"


class InputFailed(CorelaneError):
    code = "input_failed"


class OutputFailed(CorelaneError):
    code = "output_failed"


class CompileFailed(CorelaneError):
    code = "compile_failed"


class ModelRefused(CompileFailed):
    code = "model_refused"


class SetupError(CorelaneError):
    code = "setup_error"


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
