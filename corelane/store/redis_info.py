"""What Redis reports about itself (INFO): its memory, whether it takes writes, its replicas."""

from collections.abc import Mapping
from dataclasses import dataclass

import redis.exceptions

from corelane.domain.conditions import MEMORY_SHARE
from corelane.store.link.link import CommonLink


async def read_info(link: CommonLink, *sections: str) -> dict[str, str]:
    """Return the fields of sections of INFO; empty if an access list forbids it."""
    try:
        replies = await link.many([("INFO", section) for section in sections])
    except redis.exceptions.ResponseError:
        return {}
    lines = b"\n".join(replies).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


@dataclass(frozen=True, slots=True)
class RedisState:
    """The memory of Redis, and whether it takes writes; the default is a healthy Redis.

    ``reserved_bytes`` is what the results of accepted items will take. A limit of 0 means none.
    """

    used_bytes: int = 0
    limit_bytes: int = 0
    reserved_bytes: int = 0
    can_write: bool = True

    @property
    def memory_share(self) -> float:
        """Return the share of the memory that is used or reserved."""
        return (self.used_bytes + self.reserved_bytes) / self.limit_bytes if self.limit_bytes else 0.0

    @property
    def is_full(self) -> bool:
        """Return whether new jobs are refused. Memory that accepted items' results will take counts as used."""
        return round(self.memory_share, 2) >= MEMORY_SHARE


async def read_redis(link: CommonLink) -> RedisState:
    """Read the state of Redis; return the default state if an access list forbids INFO."""
    try:
        memory = await link.run("memory")
    except redis.exceptions.ResponseError:
        return RedisState()
    info = await read_info(link, "persistence")
    # With an append-only file Redis takes writes although a snapshot failed.
    status = "aof_last_write_status" if info.get("aof_enabled") == "1" else "rdb_last_bgsave_status"
    used, limit, reserved = memory
    return RedisState(used, limit, reserved, info.get(status) != "err")


@dataclass(frozen=True, slots=True)
class Replication:
    """The role of a server, and its replicas in step: how many, and how many bytes the last of them is behind.

    ``is_guarded`` says that the server takes no writes without replicas (``min-replicas-to-write``).
    """

    role: str
    replicas: int
    lag_bytes: int
    is_guarded: bool

    @classmethod
    def parse(cls, info: Mapping[str, str]) -> "Replication":
        """Parse the section `replication`. An empty section counts as a primary without replicas."""
        found = [text for name, text in info.items() if name.startswith("slave") and name[5:].isdigit()]
        slaves = [dict(part.split("=", 1) for part in text.split(",")) for text in found]
        offsets = [int(slave["offset"]) for slave in slaves if slave.get("state") == "online"]
        own = int(info.get("master_repl_offset", 0))
        role = "primary" if info.get("role", "master") == "master" else "replica"
        lag = max(0, own - min(offsets, default=own))
        return cls(role, len(offsets), lag, "min_slaves_good_slaves" in info)


async def read_replication(link: CommonLink) -> Replication | None:
    """Read the replication; None if an access list forbids it."""
    info = await read_info(link, "replication")
    return Replication.parse(info) if info else None
