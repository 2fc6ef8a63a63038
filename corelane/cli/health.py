"""``corelane health``: whether this container works; for health checks. Prints nothing when healthy."""

from typing import Any

from corelane.cli.output import print_line
from corelane.cli.service import JsonOption
from corelane.domain.dispatch import Core
from corelane.errors import NotReady
from corelane.settings import read_settings


def health(as_json: JsonOption = False) -> None:
    """Exit 0 if the core of this process serves, or, where no core is set, if the API is ready."""
    settings = read_settings()
    report: dict[str, Any]
    if settings.core is None:
        from corelane.client import Client

        with Client(f"http://127.0.0.1:{settings.port}", max_retries=0) as client:
            report, is_well, fault = {"api": client.base_url}, client.ready(), "the API is not ready"
    else:
        from corelane.store import keys
        from corelane.store.link.blocking import Link

        core = Core(settings.core_host, settings.core)
        found = Link(settings.redis_url)("HGET", keys.core(core), "state")
        state = found.decode() if found else "lost"
        report = {"core": str(core), "state": state}
        is_well, fault = state in ("idle", "busy"), f"core {core} is {state}"
    if as_json:
        print_line({"ok": is_well} | report)
    if not is_well:
        raise NotReady(fault)
