"""Checks that no other machine uses this core's name: the two would take each other's work and bells.

Machines made from one image, or containers on several hosts, often have the same name. A machine is identified by its
boot id.
"""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from corelane.domain.dispatch import Core
from corelane.errors import SetupError, Unavailable
from corelane.log import get_logger
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.link.blocking import Link

log = get_logger(__name__)

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

#: A machine with the same name that sends this many heartbeats is alive. One that is gone sends no more.
BEATS = 3

#: Heartbeats that are checked at the start of a process.
LOOKS = 30

#: The start does not wait longer than this for a Redis that does not reply, in seconds.
TIMEOUT_S = 2


def read_boot() -> str:
    """Return the id of this machine's boot, which is the same in all its containers; empty if there is none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def require_own_name(settings: Settings, core: Core) -> None:
    """Wait until no other machine serves a core of this name; raise SetupError if one is alive.

    The last heartbeat of a lost core stays until its lease ends. Its work is not taken over before.
    """
    own, beats = read_boot(), set[bytes]()
    with closing(Link(settings.redis_url, TIMEOUT_S)) as link:
        while len(beats) < BEATS:
            try:
                boot, beat = link("HMGET", keys.core(core), "boot", "beat_ms")
            except Unavailable:
                return
            if not boot or not own or boot.decode() == own:
                return
            beats.add(beat)
            time.sleep(settings.heartbeat_s / 2)
    raise SetupError(describe(core))


def describe(core: Core) -> str:
    """Say what is wrong, and what to do."""
    return f"another machine serves a core named {core}; give each machine a name of its own, with CORELANE_CORE_HOST"


class DuplicateHostWatch:
    """Logs once if another machine serves a core of this name and started within the same seconds as this one.

    The heartbeats of both overwrite each other. So those of the first half minute are checked; later ones cost nothing.
    """

    def __init__(self, core: Core, read: Callable[..., bytes | None]) -> None:
        """``read`` sends a command to Redis."""
        self._core, self._read = core, read
        self._own, self._looks = read_boot(), LOOKS

    def look(self) -> None:
        """Check the last heartbeat, before the next is sent."""
        if not self._looks or not self._own:
            return
        self._looks -= 1
        boot = self._read("HGET", keys.core(self._core), "boot")
        if boot and boot.decode() != self._own:
            self._looks = 0
            log.error("core_name_shared", core=str(self._core), detail=describe(self._core))
