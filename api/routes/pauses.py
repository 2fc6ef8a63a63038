"""Pauses: a version or an owner gets no new work until an admin resumes it."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from api.deps import AdminCaller, ReadCaller, StateDep, audit
from api.errors import documented
from api.state import AppState
from corelane.domain.api_keys import Caller
from corelane.domain.pauses import Pause, PauseKind, PauseList
from corelane.errors import Forbidden

router = APIRouter(prefix="/v1/pauses", tags=["fleet"], responses=documented(403, 404, 422, 503))

KindPath = Annotated[PauseKind, Path(description="What is paused.")]
NamePath = Annotated[str, Path(max_length=210, description="A version, NAME@FINGERPRINT; or an owner.")]


@router.get("")
async def list_pauses(state: StateDep, caller: ReadCaller) -> PauseList:
    """List what is paused, the longest pause first. Where keys are checked, only scope `admin` sees paused owners."""
    pauses = await state.pauses.read()
    return PauseList(data=pauses.shown(with_owners=state.jobs.sees_all(caller)))


@router.put("/{kind}/{name:path}")
async def pause(kind: KindPath, name: NamePath, state: StateDep, caller: AdminCaller) -> Pause:
    """Stop new work for a version or an owner until it is resumed. Work in flight is finished.

    New jobs are accepted and wait; each says so in `waiting_for`. May be repeated: the first pause stays.
    """
    require_allowed(state, caller, kind, name)
    found, is_new = await state.pauses.pause(kind, name, caller.name or caller.owner)
    if is_new:
        audit(caller, "pause", f"{kind} {name}")
    return found


@router.delete("/{kind}/{name:path}", status_code=204)
async def resume(kind: KindPath, name: NamePath, state: StateDep, caller: AdminCaller) -> Response:
    """End the pause of a version or an owner. May be repeated."""
    require_allowed(state, caller, kind, name)
    if await state.pauses.resume(kind, name):
        audit(caller, "resume", f"{kind} {name}")
    return Response(status_code=204)


def require_allowed(state: AppState, caller: Caller, kind: PauseKind, name: str) -> None:
    """Raise Forbidden for another owner where keys are not checked."""
    if kind is PauseKind.OWNER and name != caller.owner and not state.jobs.sees_all(caller):
        raise Forbidden(f"where keys are not checked, {caller.owner} is the only owner: pause or resume that")
