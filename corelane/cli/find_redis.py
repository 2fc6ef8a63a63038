"""Which Redis the operator's commands work on: the one named, else that of the `corelane serve` on the data folder.

Without either it is the default address, where any other Redis may listen.
"""

import fcntl
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from corelane.cli.errors import require
from corelane.errors import SetupError
from corelane.settings import read_settings
from corelane.settings.rules import without_password

if TYPE_CHECKING:
    from corelane.store.link.blocking import Link

#: The lock that a running `corelane serve` holds, and the file in which it names its parts.
LOCK, PARTS = "serve.lock", "parts.json"

#: Keys of which a Corelane's Redis has at least one: cores, models, placements, API keys.
TRACES = ("cl:cores", "cl:models", "cl:plan", "cl:keys")


@dataclass(frozen=True, slots=True)
class FoundRedis:
    """A Redis, whether the operator named it, and a connection to it."""

    url: str
    is_named: bool
    link: "Link"

    def is_corelane(self) -> bool:
        """Return whether a Corelane has used it."""
        return bool(self.link("EXISTS", *TRACES))


def find_redis(redis: str | None, data: Path | None) -> FoundRedis:
    """Return the Redis that a command works on; raise SetupError where its URL is known only without the password."""
    require("api", "redis")
    from corelane.store.link.blocking import Link

    settings = read_settings(redis_url=redis, data_dir=data)
    is_named = "redis_url" in settings.model_fields_set
    url = settings.redis_url
    if not is_named and (running := running_redis(settings.data_dir)):
        url, is_named = running, True
        if url != without_password(url) or "***" in url:
            raise SetupError(f"the service on {settings.data_dir} uses the Redis at {url}: give its URL with --redis")
    return FoundRedis(url, is_named, Link(url))


def running_redis(folder: Path) -> str | None:
    """Return the Redis of the `corelane serve` that runs on this data folder; None if none runs or it names none."""
    try:
        with (folder / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        pass
    except OSError:
        return None
    try:
        told = json.loads((folder / PARTS).read_bytes())
    except (OSError, ValueError):
        return None
    url = told.get("redis") if isinstance(told, dict) else None
    return url if isinstance(url, str) else None
