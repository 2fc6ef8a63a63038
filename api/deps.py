"""What routes need, as Annotated dependencies: the shared parts, who asks, and how long they want to wait.

All are coroutines, though none awaits: FastAPI sends plain functions to a thread, which costs more than they do.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Header, Path, Query, Request

from api.jobs.wait import Completions
from api.middleware.auth import CALLER
from corelane.domain.api_keys import Caller as Caller
from corelane.domain.api_keys import Scope as Scope
from corelane.domain.ids import is_job_id
from corelane.errors import Forbidden, InvalidInput, NotFound
from corelane.metrics import ApiMetrics
from corelane.settings import Settings
from corelane.store.batches import BatchStore
from corelane.store.deliveries.log import DeliveryLog
from corelane.store.file_storage import Storage
from corelane.store.files import FileStore
from corelane.store.fleet import Fleet
from corelane.store.jobs.events import JobEvents
from corelane.store.jobs.store import JobStore
from corelane.store.rollout import Rollout

#: Names that callers may give their jobs: nothing that is an id, and nothing that addresses cut short.
JOB_NAME = re.compile(r"(?!job_)(?!\.+$)[A-Za-z0-9._~-]{1,128}")


@dataclass(frozen=True, slots=True)
class Parts:
    """What one API process is made of."""

    settings: Settings
    store: JobStore
    job_events: JobEvents
    fleet: Fleet
    rollout: Rollout
    deliveries: DeliveryLog
    completions: Completions
    metrics: ApiMetrics
    files: FileStore
    batches: BatchStore
    storage: Storage


async def get_parts(request: Request) -> Parts:
    """The parts of the app that serves this request."""
    return cast(Parts, request.app.state.parts)


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


async def get_caller(request: Request) -> Caller:
    """Who asks, as the gate found out."""
    return cast(Caller, request.scope[CALLER])


async def get_job_id(
    job_id: Annotated[str, Path(max_length=200, description="The job's id, or your own name of it.")],
    parts: Annotated[Parts, Depends(get_parts)],
    caller: Annotated[Caller, Depends(get_caller)],
) -> str:
    """A path's job id, given itself or by the caller's own name; anything that cannot be either is not found."""
    if is_job_id(job_id):
        return job_id
    named = await parts.store.named(caller.owner, job_id) if JOB_NAME.fullmatch(job_id) else None
    if named is None:
        raise NotFound(f"there is no job {job_id[:128]!r}; ids look like job_0…")
    return named


async def get_job_name(
    job_id: Annotated[str, Path(max_length=200, description="Your own name of the job: letters, digits and `._~-`.")],
) -> str:
    """A name that a caller gives a job; raises InvalidInput for what cannot be one."""
    if not JOB_NAME.fullmatch(job_id):
        raise InvalidInput(
            "a job's name has 1 to 128 letters, digits and `._~-`, not only dots, and does not begin with `job_`"
        )
    return job_id


def allow(scope: Scope) -> Callable[[Caller], Awaitable[Caller]]:
    """A dependency: the caller, if they may do what the scope names; raises Forbidden."""

    async def allowed(caller: Annotated[Caller, Depends(get_caller)]) -> Caller:
        if scope not in caller.scopes:
            raise Forbidden(f"this API key may not do that: it needs the scope `{scope}`")
        return caller

    return allowed


PartsDep = Annotated[Parts, Depends(get_parts)]
JobId = Annotated[str, Depends(get_job_id)]
JobName = Annotated[str, Depends(get_job_name)]
Wait = Annotated[float | None, Depends(get_wait)]

#: What makes a request that is sent again the same request.
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

#: For routes that only certain callers may use, and that need not know which.
AS_READER, AS_ADMIN = Depends(allow(Scope.READ)), Depends(allow(Scope.ADMIN))

#: The caller of a route that takes in work or changes it, of one that shows what is the caller's own, and of one for
#: operators.
Submitter = Annotated[Caller, Depends(allow(Scope.SUBMIT))]
Reader = Annotated[Caller, Depends(allow(Scope.READ))]
Admin = Annotated[Caller, Depends(allow(Scope.ADMIN))]
