"""``corelane health``: whether this container works; for health checks. Prints nothing when healthy."""

import asyncio
import time
from typing import Annotated, Any

import typer

from corelane.cli.output import print_line
from corelane.cli.service import JsonOption
from corelane.domain.dispatch import Core
from corelane.errors import NotReady
from corelane.metrics.liveness import HealthProbe, judge, read_liveness
from corelane.settings import Settings, read_settings

#: The report, and what is wrong, or None.
Finding = tuple[dict[str, Any], str | None]


def health(
    startup: Annotated[bool, typer.Option("--startup", help="Whether it has started: its models are loaded.")] = False,
    ready: Annotated[bool, typer.Option("--ready", help="Whether it does its work now.")] = False,
    live: Annotated[bool, typer.Option("--live", help="Whether its process lives; asks nothing else.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Exit 0 if the core of this process serves, or, where no core is set, if the API is ready.

    With --startup, --ready or --live the signs of life in CORELANE_HEALTH_DIR tell, without Redis. If there are none
    and no core is set, the API tells.
    """
    asked = [probe for probe, given in zip(HealthProbe, (startup, ready, live), strict=True) if given]
    if len(asked) > 1:
        raise typer.BadParameter("give one of --startup, --ready and --live")
    settings = read_settings()
    signs = [] if settings.health_dir is None or not asked else read_liveness(settings.health_dir)
    if settings.core is None and not signs:
        # A container without signs of life may be an API's. The API is asked directly.
        report, fault = _ask_api(asked[0] if asked else HealthProbe.READY, settings)
    elif not asked:
        report, fault = _ask_redis(Core(settings.core_host, settings.core or 0), settings)
    elif settings.health_dir is None:
        report, fault = {}, "there are no signs of life: set CORELANE_HEALTH_DIR for this check and for the worker"
    else:
        report = {"parts": {sign.part: sign.state for sign in signs}}
        fault = judge(asked[0], signs, time.monotonic())
    if as_json:
        print_line({"ok": fault is None} | report)
    if fault is not None:
        raise NotReady(fault)


def _ask_api(probe: HealthProbe, settings: Settings) -> Finding:
    url = f"http://127.0.0.1:{settings.port}"
    if probe is HealthProbe.READY:
        from corelane.client import Client

        with Client(url, patience_s=0) as client:
            return {"api": url}, None if client.ready() else f"no API that is ready replies at {url}"
    from corelane.cli.own_fleet import replies_http

    is_up = asyncio.run(replies_http("127.0.0.1", settings.port))
    return {"api": url}, None if is_up else f"no API replies at {url}"


def _ask_redis(core: Core, settings: Settings) -> Finding:
    from corelane.store import keys
    from corelane.store.link.blocking import Link

    found = Link(settings.redis_url)("HGET", keys.core(core), "state")
    state = found.decode() if found else "lost"
    return {"core": str(core), "state": state}, None if state in ("idle", "busy") else f"core {core} is {state}"
