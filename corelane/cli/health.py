"""``corelane health``: whether this container works; for health checks. Prints nothing when healthy."""

from contextlib import closing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corelane.cli.output import print_line
from corelane.cli.service import JsonOption
from corelane.domain.dispatch import Core
from corelane.errors import NotReady
from corelane.settings import Settings, read_settings

if TYPE_CHECKING:
    from corelane.store.link.blocking import Link

#: Flower answers within milliseconds, and late while it reads its file, in seconds.
FLOWER_TIMEOUT_S = 5


class Part(StrEnum):
    """The parts of a service that run in containers of their own."""

    API = "api"
    WORKER = "worker"
    KEEPER = "keeper"
    DELIVERIES = "deliveries"
    FLOWER = "flower"


def health(
    part: Annotated[
        Part | None, typer.Argument(help="What runs here; worker where a core is set, api elsewhere.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Exit 0 if this part works: a core serves, the API is ready, nothing is overdue, Flower answers."""
    settings = read_settings()
    if part is None:
        part = Part.API if settings.core is None else Part.WORKER
    report, fault = _look(part, settings)
    if as_json:
        print_line({"ok": fault is None} | report)
    if fault is not None:
        raise NotReady(fault)


def _look(part: Part, settings: Settings) -> tuple[dict[str, Any], str | None]:
    """Return what there is to tell of a part, and what is wrong with it, if anything is."""
    if part is Part.API:
        from corelane.client import Client

        with Client(f"http://127.0.0.1:{settings.port}", max_retries=0) as client:
            return {"api": client.base_url}, None if client.ready() else "the API is not ready"
    if part is Part.FLOWER:
        return _flower(f"http://127.0.0.1:{settings.flower_port}")
    from corelane.store.link.blocking import Link

    with closing(Link(settings.redis_url)) as link:
        return _core(link, settings) if part is Part.WORKER else _loops(link, part)


def _core(link: "Link", settings: Settings) -> tuple[dict[str, Any], str | None]:
    from corelane.store import keys

    core = Core(settings.core_host, settings.core or 0)
    found = link("HGET", keys.core(core), "state")
    state = found.decode() if found else "lost"
    return {"core": str(core), "state": state}, None if state in ("idle", "busy") else f"core {core} is {state}"


def _loops(link: "Link", part: Part) -> tuple[dict[str, Any], str | None]:
    """Look for work of this part, on any host, that has waited for too long."""
    from corelane.store.overdue import CARRIERS, only_overdue, read_waits

    overdue = only_overdue(link.read(read_waits))
    own = sorted(kind for kind in overdue if CARRIERS[kind] == f"`corelane {part}`")
    return {"overdue": own}, f"overdue: {', '.join(own)}" if own else None


def _flower(url: str) -> tuple[dict[str, Any], str | None]:
    import httpx2

    try:
        # It asks for a password, which shows as well that it answers.
        is_well = httpx2.get(url, timeout=FLOWER_TIMEOUT_S).status_code < httpx2.codes.INTERNAL_SERVER_ERROR
    except httpx2.HTTPError:
        is_well = False
    return {"flower": url}, None if is_well else "Flower does not answer"
