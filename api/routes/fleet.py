"""The fleet: cores and models, as the cores report them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from api.deps import AS_READER, StateDep
from api.errors import documented
from corelane.domain.ids import iso_time
from corelane.domain.jobs import DEFAULT_TASK, UNLESS_NULL
from corelane.domain.overview import device_figures
from corelane.domain.pauses import Pause, PauseKind
from corelane.errors import NotFound
from corelane.submitting.model_tasks import no_such_model

router = APIRouter(prefix="/v1", tags=["fleet"], responses=documented(403, 422, 503))


class CoreModel(BaseModel):
    """One version on one core, and its state there."""

    version: str
    state: str = Field(
        description="waiting (to be loaded), loading, ready, reloading (served, and loaded again), draining "
        "(unloaded once none of its work is open) or failed; briefly loaded, reloaded or "
        "leaving, before, between and after it is served."
    )
    reason: str | None = Field(None, description="Why it failed; with ready, why it could not be loaded again.")
    buckets: list[str] = Field(default_factory=list, description="Shapes it can run, rows × tokens.")
    bytes: int = Field(0, description="What its compiled files weigh.")
    dtype: str | None = None
    cpu_kind: str | None = Field(
        None, description="Kind of CPU that the artifact which serves here was chosen for, as `amx_bf16`."
    )
    manifest_sha256: str | None = Field(None, description="Digest of the manifest that it was loaded by.")
    asked_at: str | None = Field(
        None, description="The request that led to this state; none if the settings alone did."
    )


class CoreInfo(BaseModel):
    """One core and the worker process that serves it."""

    object: Literal["core"] = "core"
    core: str = Field(description="Its name, host/index.")
    state: str = Field(
        description="starting, idle, busy; failed (no model loaded), waiting (another process holds the core, or it "
        "recovers), restarting (its process is being replaced), out_of_service (it is broken and takes no more), "
        "or lost once its heartbeat has stopped."
    )
    pid: int | None = None
    node: str | None = Field(None, description="Its worker's name in Celery and Flower.")
    queue: str | None = Field(None, description="The Celery queue only it reads.")
    cpus: list[int] = Field(default_factory=list, description="CPUs the process is pinned to.")
    cpu_kind: str | None = Field(
        None, description="Kind of its CPU; models whose `cpu_kind` is another were chosen on another kind."
    )
    versions: list[str] = Field(default_factory=list, description="Model versions it serves.")
    models: list[CoreModel] = Field(default_factory=list, description="All versions it has to do with.")
    memory_bytes: int | None = Field(None, description="Memory its process holds.")
    device: dict[str, float] = Field(
        default_factory=dict,
        description="What its device tells: `utilization` (0 to 1; on a CPU that of its process), `memory_bytes` and "
        "`errors` where the device has memory and counts errors of its own. Of the host's CPUs `host_vcpu` is the "
        "share in use, `runtime_vcpu` that of its process.",
    )
    busy_ratio: float = Field(0, description="Share of the last ten heartbeats spent on batches.")
    items: int = Field(0, description="Items answered since the process started.")
    restarts: int = Field(0, description="Processes that errors or a kill ended since its worker was started.")
    reasons: list[str] = Field(
        default_factory=list, description="Why models failed to load, or the core does not serve."
    )
    last_beat_at: str


class CoreList(BaseModel):
    """Every core that lives or was lost a while ago."""

    object: Literal["list"] = "list"
    data: list[CoreInfo]


class ModelInfo(BaseModel):
    """One model version."""

    object: Literal["model"] = "model"
    id: str = Field(description="The version, immutable.")
    name: str
    task: str = Field(DEFAULT_TASK, description="What it does: `GET /v1/tasks` says what its items and results are.")
    aliases: list[str] = Field(description="Names that mean this version now, alone or among others.")
    weights: dict[str, float] = Field(description="Its share of each of them, relative to the others'.")
    state: Literal["open", "draining"] = Field(
        description="Draining: it takes no more jobs and leaves once it has none."
    )
    cores: list[str] = Field(description="Living cores that hold it.")
    paused: Pause | None = Field(None, description="Its pause: no work of it is claimed until it is resumed.")
    waiting_for: str | None = Field(None, description="Where no living core holds it: what is expected.")
    unfinished_jobs: int = Field(description="Jobs of it that are not final.")
    target: str
    dtype: str
    buckets: list[str]
    bytes: int = Field(0, description="What its compiled files weigh.")
    max_length: int
    no_answer_threshold: float | None = Field(
        None, description="For question answering: null is answered where its logits lead by more, unless a job says."
    )
    calibrated: bool = Field(False, description="Whether scores are probabilities, and `min_precision` may be asked.")
    highest_precision: float | None = Field(
        None, description="The highest `min_precision` that gives answers; null if it is not calibrated."
    )
    input_schema: dict[str, Any] | None = Field(
        None, **UNLESS_NULL, description="JSON Schema of its items, where the task leaves that to the model."
    )
    output_schema: dict[str, Any] | None = Field(
        None, **UNLESS_NULL, description="JSON Schema of the outputs in its results, likewise."
    )
    verified: bool = Field(True, description="Whether it was compared with the model it was made from.")
    created_at: str
    created: int = Field(description="The same as OpenAI has it, in seconds since 1970.")
    owned_by: str = Field("corelane", description="What OpenAI's clients expect.")


class ModelList(BaseModel):
    """Every version that takes jobs or still has open jobs."""

    object: Literal["list"] = "list"
    data: list[ModelInfo]


def read_model(raw: dict[str, Any]) -> CoreModel:
    """Return a version in a heartbeat as callers see it."""
    asked_ms = raw.get("asked_ms")
    return CoreModel.model_validate(raw | {"asked_at": iso_time(asked_ms) if asked_ms else None})


def read_core(raw: dict[str, Any]) -> CoreInfo:
    """Return a core's heartbeat as callers see it. A core without a current heartbeat is lost."""
    last_beat_at = iso_time(int(raw["beat_ms"]))
    if "state" not in raw:
        return CoreInfo(core=raw["core"], state="lost", last_beat_at=last_beat_at)
    return CoreInfo(
        core=raw["core"],
        state=raw["state"],
        pid=int(raw["pid"]),
        node=raw["node"],
        queue=raw["queue"],
        cpus=[int(cpu) for cpu in raw["cpus"].split(",")],
        cpu_kind=raw.get("cpu_kind") or None,
        versions=orjson.loads(raw["versions"]),
        models=[read_model(model) for model in orjson.loads(raw.get("models", "[]"))],
        memory_bytes=int(raw["memory"]) if "memory" in raw else None,
        device=device_figures(raw.get("device", "")),
        busy_ratio=float(raw["busy"]),
        items=int(raw["items"]),
        restarts=int(raw.get("restarts", 0)),
        reasons=orjson.loads(raw["reasons"]),
        last_beat_at=last_beat_at,
    )


@router.get("/cores", dependencies=[AS_READER])
async def list_cores(state: StateDep) -> CoreList:
    """List the cores and their states."""
    return CoreList(data=[read_core(raw) for raw in await state.fleet.cores()])


@router.get("/models", dependencies=[AS_READER])
async def list_models(state: StateDep) -> ModelList:
    """List the models that can be asked."""
    records = await state.fleet.models()
    unheld = [record.version for record in records if not record.cores]
    outlooks = {version: await state.fleet.outlook(version) for version in unheld}
    pauses = await state.pauses.read()
    return ModelList(
        data=[
            ModelInfo(
                id=record.version,
                aliases=list(record.aliases),
                weights=record.aliases,
                state="draining" if record.is_closed else "open",
                unfinished_jobs=record.open_jobs,
                cores=record.cores,
                paused=pauses.of(PauseKind.MODEL, record.version),
                created=int(datetime.fromisoformat(found["created_at"]).timestamp()),
                waiting_for=outlook.reason if (outlook := outlooks.get(record.version)) is not None else None,
                **{key: found[key] for key in ModelInfo.model_fields if key in found},
            )
            for record in records
            for found in [{**record.summary.get("facts", {}), **record.summary}]
        ]
    )


@router.get("/models/{model}", dependencies=[AS_READER], responses=documented(404))
async def get_model(
    model: Annotated[str, Path(max_length=200, description="A version, an alias or a name.")], state: StateDep
) -> ModelInfo:
    """Return one model: a version, or the version that most jobs of an alias or a name go to."""
    return choose_model((await list_models(state)).data, model)


def choose_model(models: Sequence[ModelInfo], model: str) -> ModelInfo:
    """Return the version that is meant by a version, an alias or a name; raise NotFound."""
    found = [each for each in models if model in (each.id, each.name, *each.aliases)]
    if not found:
        raise NotFound(no_such_model(model, (name for each in models for name in (each.id, each.name, *each.aliases))))
    return max(found, key=lambda each: (each.weights.get(model, 0.0), bool(each.cores), each.created_at))
