"""``corelane health``: whether this container does its work; for health checks. Quiet when well."""

from corelane.cli.errors import exit_on_error
from corelane.errors import NotReady
from corelane.lanes import Core
from corelane.settings import Settings, read_settings


def health() -> None:
    """Exit 0 if the core of this process serves, or, where no core is set, if the API is ready."""
    with exit_on_error():
        settings = read_settings()
        if settings.core is None:
            _check_api(settings)
        else:
            _check_core(settings, Core(settings.core_host, settings.core))


def _check_core(settings: Settings, core: Core) -> None:
    from corelane.store.connections import Link

    state = Link(settings.redis_url)("HGET", f"cl:core:{core}", "state")
    if state not in (b"idle", b"busy"):
        raise NotReady(f"core {core} is {state.decode() if state else 'lost'}")


def _check_api(settings: Settings) -> None:
    from corelane.client import Client

    with Client(f"http://127.0.0.1:{settings.port}", max_retries=0) as client:
        if not client.ready():
            raise NotReady("the API is not ready")
