"""The replication of Redis, as its primary reports it."""

from collections.abc import Mapping
from dataclasses import dataclass

import redis.exceptions

from corelane.store.link.link import CommonLink


@dataclass(frozen=True, slots=True)
class Replication:
    """The role of a server, and its replicas that are in step: how many, and how many bytes the last of them is behind.

    ``is_guarded`` says that the server takes no writes without replicas (``min-replicas-to-write``).
    """

    role: str
    replicas: int
    lag_bytes: int
    is_guarded: bool


def parse_replication(info: Mapping[str, str]) -> Replication:
    """Read the fields of INFO; one of which nothing is said is a primary without replicas."""
    slaves = [dict(part.split("=", 1) for part in text.split(",")) for name, text in info.items() if _is_replica(name)]
    offsets = [int(slave["offset"]) for slave in slaves if slave.get("state") == "online"]
    own = int(info.get("master_repl_offset", 0))
    role = "primary" if info.get("role", "master") == "master" else "replica"
    lag = max(0, own - min(offsets, default=own))
    return Replication(role, len(offsets), lag, "min_slaves_good_slaves" in info)


async def read_replication(link: CommonLink) -> Replication | None:
    """Read it; None where an access list forbids it."""
    try:
        info = await link("INFO", "replication")
    except redis.exceptions.ResponseError:
        return None
    return parse_replication(dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line))


def _is_replica(name: str) -> bool:
    return name.startswith("slave") and name[5:].isdigit()
