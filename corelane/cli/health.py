"""``corelane health``: whether this container does its work; for health checks. Quiet when well."""

from typing import Any

from corelane.cli.errors import exit_on_error
from corelane.cli.output import print_line
from corelane.cli.service import JsonOption
from corelane.domain.dispatch import Core
from corelane.errors import NotReady
from corelane.settings import Settings, read_settings


def health(as_json: JsonOption = False) -> None:
    """Exit 0 if the core of this process serves, or, where no core is set, if the API is ready."""
    with exit_on_error():
        settings = read_settings()
        if settings.core is None:
            report, fault = _check_api(settings)
        else:
            report, fault = _check_core(settings, Core(settings.core_host, settings.core))
        if as_json:
            print_line({"ok": fault is None} | report)
        if fault is not None:
            raise NotReady(fault)


def _check_core(settings: Settings, core: Core) -> tuple[dict[str, Any], str | None]:
    """What to report of a core, and what is wrong with it."""
    from corelane.store import keys
    from corelane.store.link.blocking import Link

    found = Link(settings.redis_url)("HGET", keys.core(core), "state")
    state = found.decode() if found else "lost"
    return {"core": str(core), "state": state}, None if state in ("idle", "busy") else f"core {core} is {state}"


def _check_api(settings: Settings) -> tuple[dict[str, Any], str | None]:
    """What to report of the API, and what is wrong with it."""
    from corelane.client import Client

    with Client(f"http://127.0.0.1:{settings.port}", max_retries=0) as client:
        is_ready = client.ready()
        return {"api": client.base_url}, None if is_ready else "the API is not ready"
