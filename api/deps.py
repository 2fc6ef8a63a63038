"""What routes need, as Annotated dependencies: the shared parts, who asks, and how long they want to wait.

All are coroutines, though none awaits: FastAPI sends plain functions to a thread, which costs more than they do.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, cast

from fastapi import Depends, Header, Path, Query, Request

from api.completions import Completions
from corelane.errors import Forbidden, NotFound
from corelane.jobs import is_job_id
from corelane.lanes import PUBLIC
from corelane.metrics import ApiMetrics
from corelane.settings import Settings
from corelane.store.delivery_log import DeliveryLog
from corelane.store.fleet import Fleet
from corelane.store.jobs import JobStore
from corelane.store.rollout import Rollout

#: Characters of a key's digest that tell owners apart: 64 bits.
OWNER_CHARS = 16


@dataclass(frozen=True, slots=True)
class Parts:
    """What one API process is made of."""

    settings: Settings
    store: JobStore
    fleet: Fleet
    rollout: Rollout
    deliveries: DeliveryLog
    completions: Completions
    metrics: ApiMetrics


async def get_parts(request: Request) -> Parts:
    """The parts of the app that serves this request."""
    return cast(Parts, request.app.state.parts)


async def get_job_id(job_id: Annotated[str, Path(description="The job's id.")]) -> str:
    """A path's job id; anything that cannot be one is not found."""
    if not is_job_id(job_id):
        raise NotFound(f"there is no job {job_id[:64]!r}; ids look like job_0…")
    return job_id


def preferred_wait(header: str | None) -> float | None:
    """The seconds of ``Prefer: wait=N`` (RFC 7240), or None; a preference that cannot be read is ignored, as it
    asks.
    """
    match = re.search(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})\"?(?:$|[,;\s])", header or "", re.IGNORECASE)
    return float(match[1]) if match else None


async def get_wait(
    parts: Annotated[Parts, Depends(get_parts)],
    prefer: Annotated[
        str | None, Header(description="`wait=N`: answer when the job is final, or after N seconds.")
    ] = None,
    wait: Annotated[
        float | None, Query(ge=0, le=86_400, allow_inf_nan=False, description="The same as `Prefer: wait`, in seconds.")
    ] = None,
) -> float | None:
    """Seconds to wait, cut to the longest allowed; None if the caller did not ask."""
    asked = wait if wait is not None else preferred_wait(prefer)
    return None if asked is None else min(asked, parts.settings.max_wait_s)


class Scope(StrEnum):
    """What a caller may do; none of them holds another."""

    SUBMIT = "submit"
    READ = "read"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the owner that jobs, shares and bounds are kept by, and what they may do."""

    owner: str
    scopes: frozenset[Scope]


async def get_caller(
    authorization: Annotated[str | None, Header(description="`Bearer KEY`.")] = None,
    x_api_key: Annotated[str | None, Header(description="The same, without `Bearer`.")] = None,
) -> Caller:
    """The caller: a digest of the API key, ``public`` without one."""
    scheme, _, token = (authorization or "").partition(" ")
    key = x_api_key or (token.strip() if scheme.lower() == "bearer" else "")
    owner = hashlib.sha256(key.encode()).hexdigest()[:OWNER_CHARS] if key else PUBLIC
    return Caller(owner, frozenset(Scope))


def allow(scope: Scope) -> Callable[[Caller], Awaitable[Caller]]:
    """A dependency: the caller, if they may do what the scope names; raises Forbidden."""

    async def allowed(caller: Annotated[Caller, Depends(get_caller)]) -> Caller:
        if scope not in caller.scopes:
            raise Forbidden(f"this API key may not do that: it needs the scope `{scope}`")
        return caller

    return allowed


PartsDep = Annotated[Parts, Depends(get_parts)]
JobId = Annotated[str, Depends(get_job_id)]
Wait = Annotated[float | None, Depends(get_wait)]

#: For routes that only certain callers may use, and that need not know which.
AS_READER, AS_ADMIN = Depends(allow(Scope.READ)), Depends(allow(Scope.ADMIN))

#: The caller of a route that takes in work or changes it, and of one that shows what is the caller's own.
Submitter = Annotated[Caller, Depends(allow(Scope.SUBMIT))]
Reader = Annotated[Caller, Depends(allow(Scope.READ))]
