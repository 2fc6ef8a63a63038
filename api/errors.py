"""Problems (RFC 9457): the table from error classes to HTTP status, and the handlers that use it.

``type`` and ``code`` are stable per error class. A problem never repeats the caller's documents, and the problem of an
unforeseen error contains no details.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from api.request_facts import PROBES, REQUEST_FACTS, REQUEST_ID, STRICT
from corelane import errors
from corelane.errors.sentences import place_of, relevant, sentence
from corelane.log import get_logger
from corelane.metrics.definitions import PROBLEMS
from corelane.tasks.registry import DIALECTS

log = get_logger(__name__)

#: The nearest ancestor of an error's class in this table gives the status.
STATUS: dict[type[errors.CorelaneError], int] = {
    errors.CorelaneError: 500,
    errors.InvalidInput: 422,
    errors.NotJson: 415,
    errors.TooLarge: 413,
    errors.HostRefused: 421,
    errors.BodyTooSlow: 408,
    errors.VersionInUse: 409,
    errors.VersionNotReady: 409,
    errors.NameTaken: 409,
    errors.SecretInUse: 409,
    errors.NotFinal: 409,
    errors.NothingToRetry: 409,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.ResultsDropped: 410,
    errors.JobExpired: 410,
    errors.ItemsLost: 410,
    errors.Unavailable: 503,
    errors.Overloaded: 429,
}

#: Codes of failures that happen before Corelane's own code runs.
HTTP_CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 413: "too_large", 415: "bad_request"}

#: Sentences for problems for which the framework has none.
HTTP_DETAILS = {
    400: "the request body cannot be read: send one JSON object in UTF-8",
    404: "there is nothing at this path; /docs lists what there is",
    405: "this path does not take this method; /docs lists what it takes",
}

#: A retryable problem asks the caller to come back after this many seconds.
RETRY_AFTER_S = 1

#: Most validation errors listed in one problem. A request may have 10,000 bad items.
MAX_ERRORS = 20

PROBLEM_TYPE = "application/problem+json"

#: Paths that OpenAI's stock client uses, in addition to those of ``DIALECTS``.
OPENAI_PATHS = ("/v1/files", "/v1/batches", "/v1/models")

#: What is below ``/tei/{model}``, and the paths of Text Embeddings Inference in addition to those of ``DIALECTS``.
TEI_PREFIX, TEI_PATHS = "/tei/", ("/", "/info", "/health")

#: Statuses of errors in Text Embeddings Inference's form that differ from ``STATUS``; its names for kinds of errors.
TEI_STATUS = dict.fromkeys((errors.TextTooLong, errors.OutputTooLarge), 413)
TEI_STATUS |= {errors.WrongTask: 424, errors.EngineError: 424, errors.VersionNotReady: 503}
TEI_TYPES = {424: "Backend", 429: "Overloaded", 500: "Backend", 503: "Unhealthy"}

#: OpenAI's names for kinds of errors, and for a code.
OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
OPENAI_CODES = {errors.UnknownModel.code: "model_not_found"}


class OpenAIError(BaseModel):
    """An error as OpenAI's clients read it."""

    message: str
    type: str
    code: str
    param: str | None = None


class WrongForm(RequestValidationError):
    """A request that is not valid, the form that it should have, and a hint what to send, for the problem's end."""

    def __init__(self, faults: Sequence[Any], form: type[BaseModel], hint: str) -> None:
        super().__init__(faults)
        self.form, self.hint = form, hint


class FieldError(BaseModel):
    """One place of a request that is not valid."""

    at: str = Field(description="Where, as items.0.text.")
    detail: str


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    type: str = Field(description="urn:corelane:problem:CODE, stable.")
    title: str
    status: int
    detail: str = Field(description="What is wrong and what to do.")
    code: str = Field(description="Stable; docs/reference.md says what each means.")
    request_id: str | None = Field(None, description="The `X-Request-ID`: name it to the operator of the service.")
    errors: list[FieldError] | None = None
    error: OpenAIError | str | None = Field(
        None, description="The same for clients of OpenAI and of Hugging Face, on the paths that they use."
    )
    error_type: str | None = Field(None, description="The kind of error for clients of Text Embeddings Inference.")
    message: str | None = Field(None, description="The same for Cohere's clients.")


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the problems a route may respond with, for the OpenAPI document."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        status: {"model": Problem, "description": HTTPStatus(status).phrase, "content": {PROBLEM_TYPE: schema}}
        for status in statuses
    }


def problem(status: int, code: str, detail: str, retry_after_s: int = RETRY_AFTER_S, **more: Any) -> JSONResponse:
    """Make a problem response. If a retry can help with the status, ``retry_after_s`` is included."""
    body = {
        "type": f"urn:corelane:problem:{code}",
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "detail": detail,
        "code": code,
    }
    headers = {}
    if request_id := REQUEST_FACTS.get().request_id:
        body["request_id"] = headers[REQUEST_ID] = request_id
    if status in (429, 503):
        headers["Retry-After"] = str(retry_after_s)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(body | more, status, headers, media_type=PROBLEM_TYPE)


def in_words_of_others(path: str, status: int, code: str, detail: str, param: str | None = None) -> dict[str, Any]:
    """Return the members that other services' clients expect in a problem on a path; none on Corelane's own paths."""
    dialect, form = DIALECTS.get(path), form_of_errors(path)
    if form == "tei":
        return {"error": detail, "error_type": TEI_TYPES.get(status, "Validation")}
    if form != "openai":
        return {} if form is None else {"error" if form == "hugging face" else "message": detail}
    code = code if dialect is not None and dialect.is_own else OPENAI_CODES.get(code, code)
    kind = OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    told = OpenAIError(message=detail, type=kind, code=code, param=param)
    return {"error": told.model_dump()}


def form_of_errors(path: str) -> str | None:
    """Return the service whose form of an error the clients of a path read; None on Corelane's own paths."""
    if path.startswith(TEI_PREFIX) or path in TEI_PATHS:
        return "openai" if path.endswith("/v1/embeddings") else "tei"
    if path in DIALECTS:
        return DIALECTS[path].errors_of
    return "openai" if any(path == each or path.startswith(f"{each}/") for each in OPENAI_PATHS) else None


def status_for(path: str, error: errors.CorelaneError) -> int:
    """Return the HTTP status of an error on a path. Dialects of other services reply 404 to an unknown model."""
    form = form_of_errors(path)
    is_foreign = form is not None and not (path in DIALECTS and DIALECTS[path].is_own)
    if isinstance(error, errors.UnknownModel) and is_foreign:
        return 404
    return status_of(error, STATUS | TEI_STATUS if form == "tei" else STATUS)


def status_of(error: errors.CorelaneError, table: Mapping[type[errors.CorelaneError], int] = STATUS) -> int:
    """Return the HTTP status of an error."""
    return next(table[ancestor] for ancestor in type(error).__mro__ if ancestor in table)


async def refuse(scope: Scope, receive: Receive, send: Send, error: errors.CorelaneError) -> None:
    """Respond to a request with an error's problem, outside the routes' error handlers."""
    response = await _foreseen(Request(scope), error)
    await response(scope, receive, send)


def add_error_handlers(app: FastAPI) -> None:
    """Register handlers that respond to every failure with a problem."""
    app.add_exception_handler(errors.CorelaneError, _foreseen)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _unforeseen)


def count_problem(request: Request, code: str) -> None:
    """Count a problem that is sent."""
    request.app.state.app_state.metrics.recorder.add(PROBLEMS, 1, code)


async def _foreseen(request: Request, error: Exception) -> JSONResponse:
    known = error if isinstance(error, errors.CorelaneError) else errors.CorelaneError(str(error))
    status = status_for(request.url.path, known)
    count_problem(request, known.code)
    if not (isinstance(known, errors.NotReady) and request.url.path in PROBES):
        log.log(30 if status >= 500 else 20, "problem", code=known.code, status=status)
    retry_after_s = getattr(known, "retry_after_s", RETRY_AFTER_S)
    more = in_words_of_others(request.url.path, status, known.code, known.detail)
    return problem(status, known.code, known.detail, retry_after_s, **more)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    found = relevant(error.errors()) if isinstance(error, RequestValidationError) else []
    form = error.form if isinstance(error, WrongForm) else _form_of(request)
    listed = [{"at": _place(each), "detail": sentence(each, form)} for each in found[:MAX_ERRORS]]
    code = errors.InvalidInput.code
    count_problem(request, code)
    first = f"{listed[0]['at']}: {listed[0]['detail']}" if listed else "the request is not valid"
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    more += error.hint if isinstance(error, WrongForm) else ""
    is_much = form_of_errors(request.url.path) == "tei" and bool(found) and found[0]["type"] == "too_long"
    status = 413 if is_much else 422
    told = in_words_of_others(request.url.path, status, code, first + more, listed[0]["at"] if listed else None)
    return problem(status, code, first + more, errors=listed, **told)


def _form_of(request: Request) -> Any:
    """Return the type of the body that a route takes; None if it takes none."""
    field = getattr(request.scope.get("route"), "body_field", None)
    return field and field.field_info.annotation


def _place(found: Mapping[str, Any]) -> str:
    """Return the place of a fault in a request. The place is in the body unless it names another part."""
    if found["type"] == "json_invalid":
        return "body"
    return place_of(found).removeprefix("body.")


async def _http(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error.__cause__, errors.CorelaneError):
        # The error occurred while the body came in, and FastAPI turned it into a 400.
        return await _foreseen(request, error.__cause__)
    if isinstance(error.__cause__, RequestValidationError):
        return await _invalid(request, error.__cause__)
    status = error.status_code if isinstance(error, HTTPException) else 500
    code = HTTP_CODES.get(status, "http_error")
    count_problem(request, code)
    detail = HTTP_DETAILS.get(status, f"HTTP {status}")
    return problem(status, code, detail, **in_words_of_others(request.url.path, status, code, detail))


async def _gone(request: Request, error: Exception) -> JSONResponse:  # noqa: ARG001  # the signature is Starlette's
    """Respond to a caller who disconnected. Nothing was stored, and the response is not read."""
    log.info("sender_broke_off", path=request.url.path)
    return problem(400, HTTP_CODES[400], "the body broke off before its end")


async def _unforeseen(request: Request, error: Exception) -> JSONResponse:
    count_problem(request, "internal")
    log.error("unforeseen_error", path=request.url.path, exc_info=error)
    detail = "something broke that should not; the service's log says what"
    response = problem(500, "internal", detail, **in_words_of_others(request.url.path, 500, "internal", detail))
    # This is sent outside the layer that adds these headers.
    response.headers.update(STRICT)
    return response
