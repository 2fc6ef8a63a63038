"""Models: the versions, their state on each core, and the meaning of aliases. Admins can change all of these."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request, Response
from starlette.responses import RedirectResponse

from api.deps import AS_READER, AdminCaller, StateDep
from api.routes import fleet, rollout
from api.state import AppState
from corelane.artifacts.finding import list_artifacts
from corelane.domain.api_keys import Caller
from corelane.domain.placement import ALL_CORES
from corelane.errors import CorelaneError, InvalidInput
from corelane.log import get_logger
from corelane.plugins.console.auth import CONSOLE
from corelane.plugins.console.pages.nav import Update
from corelane.plugins.console.pages.page_route import PageRoute
from corelane.plugins.console.pages.render import HEADERS, base_of, fragment, is_htmx, render, rights

log = get_logger(__name__)

router = APIRouter(prefix=CONSOLE, route_class=PageRoute, dependencies=[AS_READER])

Text = Annotated[str, Form(min_length=1, max_length=210)]


@router.get("/models")
async def models(request: Request, state: StateDep, did: str = "") -> Response:
    """Show the versions, where they are held, and the aliases."""
    shown = await _versions(state) | await _aliases(state) | {"did": did, "stream": "page=models"}
    return render(request, "models.html", **shown, on_disk=await _on_disk(state, shown["models"]))


async def feed(state: AppState, caller: Caller, _: Mapping[str, str]) -> Update:
    """Return the current state of the versions."""
    can = rights(caller.scopes)
    return Update({"versions": fragment("models/versions.html", can=can, **await _versions(state))})


@router.post("/models/load")
async def load(
    request: Request,
    state: StateDep,
    caller: AdminCaller,
    model: Text,
    core: Text = ALL_CORES,
) -> Response:
    """Load a version on a core, or on all."""
    wanted = rollout.LoadRequest(model=model.strip())
    placement = await rollout.load_model(core, wanted, state, caller)
    return _done(request, f"{placement.version} is to be loaded on {_where(core)} now; the table shows how far it is.")


@router.post("/models/reload")
async def reload(
    request: Request, state: StateDep, caller: AdminCaller, version: Text, core: Text = ALL_CORES
) -> Response:
    """Load a version's artifact again."""
    await rollout.reload_model(core, version, state, caller)
    return _done(request, f"{version} is loaded again on {_where(core)}; the old one is served until then.")


@router.post("/models/unload")
async def unload(
    request: Request,
    state: StateDep,
    caller: AdminCaller,
    version: Text,
    core: Text = ALL_CORES,
    force: Annotated[bool, Form()] = False,
) -> Response:
    """Unload a version from a core or from all."""
    await rollout.unload_model(core, version, state, caller, force)
    return _done(request, f"{version} leaves {_where(core)}{'' if force else ' once none of its work is open there'}.")


@router.post("/aliases/set")
async def set_alias(
    request: Request,
    state: StateDep,
    caller: AdminCaller,
    alias: Text,
    version: Annotated[list[Text], Form(max_length=20)],
    weight: Annotated[list[Annotated[float, Form(ge=0, le=1e6)]], Form(max_length=20)],
) -> Response:
    """Make an alias mean versions by weight: one `weight` for each `version`, in the same order."""
    if len(version) != len(weight):
        raise InvalidInput("give one weight for each version")
    return await _set_alias(request, state, caller, alias, dict(zip(version, weight, strict=True)))


@router.post("/aliases/move")
async def move_alias(
    request: Request,
    state: StateDep,
    caller: AdminCaller,
    alias: Text,
    version: Text,
    share: Annotated[float, Form(gt=0, le=100)] = 100,
) -> Response:
    """Send a share of an alias's new jobs, in percent, to a version; its other versions share the rest as before."""
    known = {each.alias: each.weights for each in (await rollout.list_aliases(state)).data}
    others = {name: weight for name, weight in known.get(alias, {}).items() if name != version}
    rest = {name: (100 - share) * weight / sum(others.values()) for name, weight in others.items()}
    return await _set_alias(request, state, caller, alias, {version: share, **rest})


@router.post("/aliases/unset")
async def unset_alias(request: Request, state: StateDep, caller: AdminCaller, alias: Text) -> Response:
    """Remove an alias, so that the workers' settings decide again what it means."""
    await rollout.unset_alias(alias, state, caller)
    return await _changed_alias(request, state, f"The settings of the workers decide again what {alias} means.")


async def _set_alias(
    request: Request, state: AppState, caller: Caller, alias: str, weights: dict[str, float]
) -> Response:
    if not any(weights.values()):
        raise InvalidInput("one of the weights must be above zero")
    await rollout.set_alias(alias, rollout.AliasRequest(version=None, weights=weights, force=False), state, caller)
    return await _changed_alias(request, state, f"New jobs of {alias} go by these shares from now on.")


async def _versions(state: AppState) -> dict[str, Any]:
    """Return the versions and the cores, and of each version the cores on which it stands alike."""
    models = (await fleet.list_models(state)).data
    cores = (await fleet.list_cores(state)).data
    standing: dict[str, dict[tuple[str, str, int, str], list[str]]] = {}
    for core in cores:
        for each in core.models:
            alike = each.state, each.reason or "", each.bytes, ", ".join(each.buckets)
            standing.setdefault(each.version, {}).setdefault(alike, []).append(core.core)
    known = {model.id for model in models}
    # A version that failed to load everywhere was never announced.
    strangers = sorted(version for version in standing if version not in known)
    return {"models": models, "cores": cores, "standing": standing, "strangers": strangers}


async def _aliases(state: AppState) -> dict[str, Any]:
    return {"aliases": (await rollout.list_aliases(state)).data}


async def _on_disk(state: AppState, models: list[fleet.ModelInfo]) -> list[str]:
    """Return the versions that the API finds among the artifacts and that no core has loaded."""
    known = {model.id for model in models}
    settings = state.settings
    try:
        found = await asyncio.to_thread(list_artifacts, settings.artifact_root, settings.target)
    except (CorelaneError, OSError) as error:
        log.info("artifacts_not_listed", detail=str(error))
        return []
    return sorted({artifact.manifest.version_id for artifact in found} - known)


def _where(core: str) -> str:
    return "all cores" if core == ALL_CORES else core


def _done(request: Request, text: str) -> Response:
    """Reply to an action: with a message for htmx, or else with the page."""
    if is_htmx(request):
        return render(request, "note.html", text=text)
    return RedirectResponse(base_of(request) + "models", 303, HEADERS)


async def _changed_alias(request: Request, state: AppState, text: str) -> Response:
    if is_htmx(request):
        shown = await _versions(state) | await _aliases(state)
        return render(request, "models/aliases.html", **shown, note=text)
    return RedirectResponse(base_of(request) + "models", 303, HEADERS)
