"""Rollout: load and unload versions on cores, and move aliases, while other requests are served without a pause."""

from collections import defaultdict
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field, model_validator

from api.deps import AS_READER, AdminCaller, StateDep, audit
from api.errors import documented
from api.reading import JsonRoute
from api.state import AppState
from corelane.artifacts.finding import find_artifact
from corelane.artifacts.manifest import VERSION_ID
from corelane.domain.aliases import ALIAS_NAME
from corelane.domain.ids import iso_time
from corelane.domain.placement import ALL_CORES, Placement, PlacementScope
from corelane.domain.wire import Wire, at_most
from corelane.errors import ArtifactRefused, InvalidInput, NotFound, UnknownModel
from corelane.submitting.model_tasks import no_such_model

router = APIRouter(prefix="/v1", tags=["fleet"], responses=documented(403, 404, 409, 422, 503), route_class=JsonRoute)

CorePath = Annotated[str, Path(description="A core's name, host/index, or `all`.", examples=["all"])]
VersionPath = Annotated[str, Path(description="A version, NAME@FINGERPRINT; or a name that one version has.")]
AliasPath = Annotated[str, Path(description="Letters, digits, `.`, `_` and `-`, in lower case.")]


class LoadRequest(Wire):
    """The version to load, and on which cores."""

    model: str = Field(
        min_length=1,
        max_length=210,
        description="A version, NAME@FINGERPRINT; or a name: its newest version, where the API sees the artifacts.",
    )
    manifest_sha256: str | None = Field(
        None,
        pattern=r"^[0-9a-f]{64}$",
        description="Refuse artifacts whose manifest.json has another digest; cores that hold another load it again.",
    )


class ReloadRequest(Wire):
    """The cores on which to load a version again."""

    manifest_sha256: str | None = Field(
        None, pattern=r"^[0-9a-f]{64}$", description="With `all`: the digest that manifest.json must have from now on."
    )


class PlacementInfo(BaseModel):
    """The placement of a version from now on."""

    object: Literal["placement"] = "placement"
    version: str
    scope: PlacementScope = Field(description="all, none, or settings (the cores whose settings name its model).")
    cores: list[str] = Field(description="Further cores it is wanted on.")
    without: list[str] = Field(description="Cores it is not wanted on.")
    asked_at: str = Field(description="When this was asked for; cores that follow it say the same.")

    @classmethod
    def of(cls, version: str, placement: Placement) -> "PlacementInfo":
        """Return a placement as callers see it."""
        return cls(
            version=version,
            scope=placement.scope,
            cores=list(placement.cores),
            without=list(placement.without),
            asked_at=iso_time(placement.since_ms),
        )


#: Weights of versions.
Weights = Annotated[dict[str, Annotated[float, Field(ge=0, le=1e6)]], Field(min_length=1, max_length=20), at_most(20)]


class AliasRequest(Wire):
    """The new meaning of an alias: one ``version``, or several by ``weights``."""

    version: str | None = Field(None, min_length=1, max_length=210, description="A version, or a name that one has.")
    weights: Weights | None = Field(None, description="Versions or such names with their relative shares.")
    force: bool = Field(False, strict=True, description="Even if no living core holds a version yet.")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.version is None) == (self.weights is None):
            raise ValueError("give a `version`, or `weights` of several")
        if self.weights is not None and not any(self.weights.values()):
            raise ValueError("one of the `weights` must be above zero")
        return self

    @property
    def shares(self) -> dict[str, float]:
        """Return the versions with their weights."""
        return self.weights if self.weights is not None else {self.version or "": 1.0}


class AliasInfo(BaseModel):
    """An alias and what it means."""

    object: Literal["alias"] = "alias"
    alias: str
    weights: dict[str, float] = Field(description="Versions with their shares, relative to each other.")
    is_set: bool = Field(description="Set here; else it is what the workers' settings mean by it.")


class AliasList(BaseModel):
    """Every alias."""

    object: Literal["list"] = "list"
    data: list[AliasInfo]


@router.post("/cores/{core:path}/models", status_code=202)
async def load_model(core: CorePath, request: LoadRequest, state: StateDep, caller: AdminCaller) -> PlacementInfo:
    """Have one core, or all, load a version. The version is served once it is checked and warm in every bucket.

    Other versions are served meanwhile. A repeated request makes cores that failed try again.
    """
    await require_core(state, core)
    version = resolve(state, request.model)
    manifest = request.manifest_sha256 or ""
    placement = await state.rollout.load(version, core, manifest=manifest)
    audit(caller, "model.load", version, f"on {core}")
    return PlacementInfo.of(version, placement)


@router.post("/cores/{core:path}/models/{version}/reload", status_code=202)
async def reload_model(
    core: CorePath, version: VersionPath, state: StateDep, caller: AdminCaller, request: ReloadRequest | None = None
) -> PlacementInfo:
    """Have a core, or all that hold a version, load its artifact again after it was compiled or calibrated in place.

    The old one is served until the new one is warm. It stays if the new one does not load: `GET /v1/cores` says why.
    """
    await require_core(state, core)
    given = request.manifest_sha256 if request else None
    if given and core != ALL_CORES:
        raise InvalidInput("`manifest_sha256` goes with `all`: it holds wherever the version is wanted")
    manifest = (given or "") if core == ALL_CORES else None
    version = await known_version(state, version)
    placement = await state.rollout.reload(version, core, manifest=manifest)
    audit(caller, "model.reload", version, f"on {core}")
    return PlacementInfo.of(version, placement)


@router.delete("/cores/{core:path}/models/{version}", status_code=202)
async def unload_model(
    core: CorePath,
    version: VersionPath,
    state: StateDep,
    caller: AdminCaller,
    force: Annotated[
        bool,
        Query(description="At once: jobs that wait for it go on waiting until it is loaded again, or they end."),
    ] = False,
) -> PlacementInfo:
    """Have one core, or all, unload a version. With `all` the version takes no more jobs, and leaves once its last job
    is final. With one core it leaves once another core holds it.

    Refused while an alias means the version, or if the one core is the only one that holds it.
    """
    await require_core(state, core)
    version = await known_version(state, version)
    placement = await state.rollout.unload(version, core, force=force)
    audit(caller, "model.unload", version, f"from {core}{', forced' if force else ''}")
    return PlacementInfo.of(version, placement)


@router.get("/aliases", dependencies=[AS_READER])
async def list_aliases(state: StateDep) -> AliasList:
    """List the aliases and what they mean."""
    return AliasList(
        data=[
            AliasInfo(alias=each.alias, weights=each.weights, is_set=each.is_set)
            for each in await state.rollout.aliases()
        ]
    )


@router.put("/aliases/{alias}")
async def set_alias(alias: AliasPath, request: AliasRequest, state: StateDep, caller: AdminCaller) -> AliasInfo:
    """Make an alias mean one version, or several by weight. Each job goes to one version, and jobs with the same
    `sticky_key` go to the same one. Jobs already submitted keep their version.
    """
    if not ALIAS_NAME.match(alias):
        raise InvalidInput("an alias is lower-case letters, digits, `.`, `_` and `-`, at most 100")
    shares: dict[str, float] = defaultdict(float)
    for model, weight in request.shares.items():
        shares[await known_version(state, model)] += weight
    shares = {version: weight for version, weight in shares.items() if weight > 0}
    await state.jobs.submitter.tasks.require_one(shares)
    await state.rollout.set_alias(alias, shares, force=request.force)
    means = ", ".join(f"{version} {weight:g}" for version, weight in shares.items())
    audit(caller, "alias.set", alias, means)
    return AliasInfo(alias=alias, weights=shares, is_set=True)


@router.delete("/aliases/{alias}")
async def unset_alias(alias: AliasPath, state: StateDep, caller: AdminCaller) -> AliasInfo:
    """Remove an alias that was set here: the workers' settings decide again what it means, if anything."""
    weights = await state.rollout.unset_alias(alias)
    audit(caller, "alias.unset", alias)
    return AliasInfo(alias=alias, weights=weights, is_set=False)


async def require_core(state: AppState, core: str) -> None:
    """Raise NotFound for a core that sent no heartbeat in the last hour."""
    if core != ALL_CORES and core not in {known["core"] for known in await state.fleet.cores()}:
        raise NotFound(f"there is no core {core[:120]!r}; GET /v1/cores lists them, `all` means every one")


def _well_formed(version: str) -> str:
    """Return a version; raise InvalidInput if it is malformed."""
    if not VERSION_ID.match(version):
        raise InvalidInput(f"{version[:120]!r} is not a version; versions look like qa-minilm@3f2a94c1d07b")
    return version


def resolve(state: AppState, model: str) -> str:
    """Return the version that a request means; a name means the newest below the artifact root. Raise InvalidInput."""
    if "@" in model:
        return _well_formed(model)
    try:
        return find_artifact(state.settings.artifact_root, model, state.settings.target).manifest.version_id
    except ArtifactRefused as error:
        raise InvalidInput(f"{error.detail}; or name a version, as {model}@3f2a94c1d07b") from None


async def known_version(state: AppState, model: str) -> str:
    """Return a version, or the only one of a name; raise InvalidInput or UnknownModel."""
    if "@" in model:
        return _well_formed(model)
    named = {each.version: each.version.partition("@")[0] for each in await state.fleet.models()}
    found = [version for version, name in named.items() if name == model]
    if not found:
        raise UnknownModel(no_such_model(model, (*named, *named.values())))
    if len(found) > 1:
        raise InvalidInput(f"{model} has several versions: name one of {', '.join(found)}")
    return found[0]
