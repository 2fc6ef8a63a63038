"""Health and metrics: alive (no dependencies), ready (Redis replies and a core holds the default model), metrics."""

import json
from contextlib import suppress
from typing import Literal

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field

from api.deps import StateDep
from api.errors import documented
from api.reading import PlainRoute
from api.requests import PlainRequest
from api.state import AppState
from corelane.domain.conditions import DISK_FULL
from corelane.errors import NotReady, Unavailable
from corelane.metrics.definitions import MIN_CORES, STORE_UP
from corelane.metrics.exposition import MetricSample, render
from corelane.store.gauges import CARRIERS, only_overdue, read_all, read_waits
from corelane.store.health_issues import read_part_issues
from corelane.store.redis_info import read_redis, read_replication

router = APIRouter(tags=["health"])
hot = APIRouter(tags=["health"], route_class=PlainRoute)


class Detail(BaseModel):
    """One kind of work other than answering items. Red: the work has waited for 30 s although it could go on."""

    state: Literal["green", "red"]
    waits_s: float = 0.0
    parts: list[str] = Field(
        default_factory=list,
        description="Parts of a `serve` that do not stay up; of Redis, missing replicas or full memory.",
    )


class Health(BaseModel):
    """Whether the service is alive or ready. A red detail of other work needs an operator, but changes no status."""

    status: str = "ok"
    cores: int | None = None
    details: dict[str, Detail] | None = None


LIVE = Health().model_dump_json().encode()


@hot.get("/livez", response_model=Health)
async def live(_: PlainRequest) -> Response:
    """Respond, which shows that this process runs."""
    return Response(LIVE, media_type="application/json")


@router.get("/readyz", responses=documented(503))
async def ready(state: StateDep) -> Health:
    """Say whether an item sent now would be answered: 503 with the reason if not."""
    cores, store = await state.fleet.default_cores(), await read_redis(state.link)
    if not store.can_write:
        raise NotReady(f"Redis {DISK_FULL}")
    if cores < state.settings.min_cores or (cores == 0 and not await may_sleep(state)):
        codes = sorted({code for core in await state.fleet.cores() for code in reason_codes(core.get("reasons", "[]"))})
        found = f" ({', '.join(codes)})" if codes else ""
        few = f"only {cores} of {state.settings.min_cores} cores hold" if cores else "no living core holds"
        raise NotReady(f"{few} the default model{found}; GET /v1/cores has the reasons")
    waits = await read_waits(state.link)
    overdue = only_overdue(waits)
    details = {
        name: Detail(state="red" if name in overdue else "green", waits_s=round(waits.get(name, 0.0), 1))
        for name in CARRIERS
    }
    down = [issue.part for issue in await read_part_issues(state.link)]
    lacking = ["memory is full: new jobs are refused"] if store.is_full else []
    if wanted := state.settings.replicas_ack:
        seen = await read_replication(state.link)
        lacking += [f"{seen.replicas} of {wanted} replicas"] if seen is not None and seen.replicas < wanted else []
    details["redis"] = Detail(state="red" if lacking else "green", parts=lacking)
    details["parts"] = Detail(state="red" if down else "green", parts=down)
    return Health(cores=cores, details=details)


@router.get("/metrics", include_in_schema=False)
async def metrics(state: StateDep) -> Response:
    """Return the service's Prometheus metrics; only `corelane_store_up`, 0, if Redis is away or takes no writes."""
    with suppress(Unavailable):
        await state.flushing.flush()
    try:
        series, samples = await read_all(state.link)
        shown = render(series, [*samples, MetricSample(MIN_CORES, state.settings.min_cores)])
    except Unavailable:
        # No counter is shown: if it began again at 0, the service would look new.
        shown = render(None, [MetricSample(STORE_UP, 0)])
    return Response(shown, media_type=CONTENT_TYPE_LATEST)


async def may_sleep(state: AppState) -> bool:
    """Return whether the service is ready although no core holds the default model: the first item starts one.

    It is not ready if cores run but cannot serve, or if the default model is not known yet.
    """
    if not await state.fleet.has_default():
        return False
    states = {core["state"] for core in await state.fleet.cores() if "state" in core}
    return states <= {"starting", "restarting", "idle", "busy"}


def reason_codes(reasons: str) -> list[str]:
    """Return the codes of a core's reasons. Readiness is public, so no sentence is shown."""
    return [code for code in (str(each).partition(":")[0] for each in json.loads(reasons)) if code.isidentifier()]
