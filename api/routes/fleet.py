"""The fleet: cores and models, as they announce themselves."""

from typing import Any, Literal

import orjson
from fastapi import APIRouter
from pydantic import BaseModel, Field

from api.deps import PartsDep
from api.errors import documented
from corelane.jobs import iso_time

router = APIRouter(prefix="/v1", tags=["fleet"], responses=documented(503))


class CoreInfo(BaseModel):
    """One core and the worker process that serves it."""

    object: Literal["core"] = "core"
    core: str = Field(description="Its name, host/index.")
    state: str = Field(
        description="starting, idle, busy; failed (no model loaded), waiting (another process holds the core, or it is "
        "given time), restarting (its process is being replaced), out_of_service (it is broken and takes no more), or "
        "lost once its heartbeat has stopped."
    )
    pid: int | None = None
    node: str | None = Field(None, description="Its worker's name in Celery and Flower.")
    queue: str | None = Field(None, description="The Celery queue only it reads.")
    cpus: list[int] = Field(default_factory=list, description="CPUs the process is pinned to.")
    versions: list[str] = Field(default_factory=list, description="Model versions it holds.")
    busy_ratio: float = Field(0, description="Share of the last ten heartbeats spent on batches.")
    items: int = Field(0, description="Items answered since the process started.")
    restarts: int = Field(0, description="Times its errors made a new process necessary, since its worker was started.")
    reasons: list[str] = Field(
        default_factory=list, description="Why models failed to load, or the core does not serve."
    )
    last_beat_at: str


class CoreList(BaseModel):
    """Every core heard of in the last hour."""

    object: Literal["list"] = "list"
    data: list[CoreInfo]


class ModelInfo(BaseModel):
    """One model version."""

    object: Literal["model"] = "model"
    id: str = Field(description="The version, immutable.")
    name: str
    aliases: list[str] = Field(description="Names that mean this version now.")
    cores: list[str] = Field(description="Living cores that hold it.")
    target: str
    dtype: str
    buckets: list[str]
    max_length: int
    no_answer_threshold: float
    calibrated: bool = Field(False, description="Whether scores are probabilities, and `min_precision` may be asked.")
    created_at: str


class ModelList(BaseModel):
    """Every version the fleet has announced."""

    object: Literal["list"] = "list"
    data: list[ModelInfo]


def read_core(raw: dict[str, Any]) -> CoreInfo:
    """A heartbeat as callers see it; without one the core is lost."""
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
        versions=orjson.loads(raw["versions"]),
        busy_ratio=float(raw["busy"]),
        items=int(raw["items"]),
        restarts=int(raw.get("restarts", 0)),
        reasons=orjson.loads(raw["reasons"]),
        last_beat_at=last_beat_at,
    )


@router.get("/cores")
async def list_cores(parts: PartsDep) -> CoreList:
    """The cores and how they are."""
    return CoreList(data=[read_core(raw) for raw in await parts.fleet.cores()])


@router.get("/models")
async def list_models(parts: PartsDep) -> ModelList:
    """The models that can be asked."""
    return ModelList(
        data=[
            ModelInfo(
                id=record.version,
                aliases=record.aliases,
                cores=record.cores,
                **{key: record.summary[key] for key in ModelInfo.model_fields if key in record.summary},
            )
            for record in await parts.fleet.models()
        ]
    )
