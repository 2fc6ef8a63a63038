"""The ports that `serve` takes: the API's at once, those of Redis and Flower as claims."""

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from socket import socket

from corelane.cli.ports import PortClaim, hold_port
from corelane.cli.supervisor import Supervisor
from corelane.domain.addresses import local_url
from corelane.settings import Settings, is_loopback

#: The port of a Redis that is started here, or the next free one.
REDIS_PORT = 6379


@dataclass(frozen=True, slots=True)
class ServicePorts:
    """The API's socket, Redis' port, Flower's port and its password; None for a part that this host does not run."""

    api: socket | None
    redis: PortClaim
    flower: PortClaim | None
    password: str


@contextmanager
def choose_ports(
    settings: Settings, supervisor: Supervisor, roles: frozenset[str]
) -> Iterator[tuple[Settings, ServicePorts]]:
    """Yield settings with the ports that were free, and the ports; the API's is held until the block ends.

    Raise SetupError if a port that was given is busy.
    """
    redis = PortClaim("127.0.0.1", REDIS_PORT, "--redis")
    if "api" not in roles:
        settings, flower = _choose_flower(settings, supervisor, roles)
        yield settings, ServicePorts(None, redis, flower, _password(settings))
        return
    is_given = "port" in settings.model_fields_set
    with closing(hold_port(settings.host, settings.port, is_given=is_given)) as listening:
        port = int(listening.getsockname()[1])
        if settings.port not in (0, port):
            supervisor.say(f"port {settings.port} is busy: the API listens on {port}", "warning")
        if settings.requires_keys:
            supervisor.say("the API requires a key (CORELANE_AUTH)")
        elif not is_loopback(settings.host):
            supervisor.say(
                f"the API listens on {settings.host} and requires no key (CORELANE_AUTH=off): put a proxy in front of "
                "it",
                "warning",
            )
        settings = settings.model_copy(update={"port": port})
        supervisor.note(api=local_url(settings.host, port))
        settings, flower = _choose_flower(settings, supervisor, roles)
        yield settings, ServicePorts(listening, redis, flower, _password(settings))


def _choose_flower(
    settings: Settings, supervisor: Supervisor, roles: frozenset[str]
) -> tuple[Settings, PortClaim | None]:
    """Return settings with a free port of Flower, and the claim on it; None where Flower is not started."""
    if "flower" not in roles:
        return settings, None
    is_given = "flower_port" in settings.model_fields_set
    claim = PortClaim(settings.flower_host, settings.flower_port, "--flower-port", is_given=is_given)
    taken = claim.choose()
    if settings.flower_port not in (0, taken):
        supervisor.say(f"port {settings.flower_port} is busy: Flower listens on {taken}", "warning")
    supervisor.note(flower=local_url(settings.flower_host, taken))
    return settings.model_copy(update={"flower_port": taken}), claim


def _password(settings: Settings) -> str:
    """Return Flower's password: the one that is set, or a new one."""
    secret = settings.flower_password
    return secrets.token_urlsafe(12) if secret is None else secret.get_secret_value()
