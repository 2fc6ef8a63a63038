"""The dependencies of routes, as Annotated types: the app's state, the caller, and the job that is meant.

All are coroutines, though few await: FastAPI runs plain functions in a thread, which costs more than these functions.
The audit of what callers do is here too.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, cast

from fastapi import Depends, Header, Path, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict

from api.request_facts import CALLER
from api.requests import require_scope
from api.state import AppState
from corelane.domain.api_keys import Caller, Scope
from corelane.domain.ids import is_job_id
from corelane.domain.job_filter import JobFilter
from corelane.errors import InvalidInput, NotFound
from corelane.errors.sentences import unknown_name
from corelane.log import get_logger

log = get_logger(__name__)

#: The form of a name that a caller gives a job: it cannot be confused with an id, and proxies do not remove it from an
#: address.
JOB_NAME = re.compile(r"(?!job_)(?!\.+$)[A-Za-z0-9._~-]{1,128}")


async def get_state(request: Request) -> AppState:
    """Return the state of the app that serves this request."""
    return cast(AppState, request.app.state.app_state)


async def get_caller(request: Request) -> Caller:
    """Return the caller that the outer layers identified."""
    return cast(Caller, request.scope[CALLER])


#: A job in a path, as ``find_job`` reads it.
JobInPath = Annotated[str, Path(max_length=200, description="The job's id, or your own name of it.")]


async def get_job_id(
    job_id: JobInPath,
    state: Annotated[AppState, Depends(get_state)],
    caller: Annotated[Caller, Depends(get_caller)],
) -> str:
    """Return the id of the job in a path."""
    return await find_job(state, caller, job_id)


async def find_job(state: AppState, caller: Caller, job: str) -> str:
    """Return the id of a job given by id or by the caller's name; raise NotFound for an unknown name."""
    if is_job_id(job):
        return job
    named = await state.store.named(caller.owner, job) if JOB_NAME.fullmatch(job) else None
    if named is None:
        raise NotFound(f"there is no job {job[:128]!r}; ids look like job_0…")
    return named


def require_job_name(name: str) -> None:
    """Raise InvalidInput if a new name for a job is malformed."""
    if not JOB_NAME.fullmatch(name):
        raise InvalidInput(
            "a job's name has 1 to 128 letters, digits and `._~-`, not only dots, and does not begin with `job_`"
        )


def allow(scope: Scope) -> Callable[[Caller], Awaitable[Caller]]:
    """Return a dependency that yields the caller if the key has a scope, and raises Forbidden otherwise."""

    async def allowed(caller: Annotated[Caller, Depends(get_caller)]) -> Caller:
        require_scope(caller, scope)
        return caller

    return allowed


async def refuse_unknown_parameters(request: Request) -> None:
    """Refuse query parameters that the route does not have: a misspelt one would silently do nothing."""
    route = request.scope.get("route")
    if not request.scope["query_string"] or not isinstance(route, APIRoute) or not route.path.startswith("/v1/"):
        return
    known = tuple(dict.fromkeys(_parameters_of(route.dependant)))
    unknown = [name for name in dict.fromkeys(request.query_params.keys()) if name not in known]
    if unknown:
        raise RequestValidationError(
            [
                {
                    "type": "unknown_parameter",
                    "loc": ("query", name),
                    "msg": unknown_name("parameter", name, known),
                }
                for name in unknown
            ]
        )


def _parameters_of(dependant: Dependant) -> list[str]:
    """Return the query parameters of a route and of its dependencies, in order."""
    own = [name for field in dependant.query_params for name in _names_of(field)]
    return own + [name for each in dependant.dependencies for name in _parameters_of(each)]


def _names_of(field: Any) -> list[str]:
    """Return the names of the parameters in a field: one, or several if the field is a model."""
    model = field.field_info.annotation
    if isinstance(model, type) and issubclass(model, BaseModel):
        return [each.alias or name for name, each in model.model_fields.items()]
    return [field.alias]


class JobQuery(JobFilter):
    """A filter of jobs as query parameters; a route may have other parameters too."""

    model_config = ConfigDict(extra="ignore")


async def get_job_filter(query: Annotated[JobQuery, Query()]) -> JobFilter:
    """Return the job filter in the query parameters."""
    return query


StateDep = Annotated[AppState, Depends(get_state)]
JobId = Annotated[str, Depends(get_job_id)]
JobFilterDep = Annotated[JobFilter, Depends(get_job_filter)]

#: A new name for a job in a path, which ``require_job_name`` checks.
NameInPath = Annotated[str, Path(max_length=200, description="Your own name of the job: letters, digits and `._~-`.")]

#: A key by which a repeated request is recognised.
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x20-\x7e]+$",
        description="A text of your own, new for each job: the request may then be sent again and is one job.",
    ),
]

#: For routes that need the scope but not the caller.
AS_READER = Depends(allow(Scope.READ))

#: The callers of three kinds of routes: routes that accept or change work, routes that show the caller's own work, and
#: routes for admins.
SubmitCaller = Annotated[Caller, Depends(allow(Scope.SUBMIT))]
ReadCaller = Annotated[Caller, Depends(allow(Scope.READ))]
AdminCaller = Annotated[Caller, Depends(allow(Scope.ADMIN))]


def audit(who: Caller, action: str, subject: str, detail: str = "") -> None:
    """Log who did what, and to what. The action steers the service, or changes another owner's data."""
    log.info("audit", key=who.name, owner=who.owner, action=action, subject=subject, detail=detail)
