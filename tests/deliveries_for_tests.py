"""Deliveries of made-up events: what the store's scripts schedule as jobs begin and end, for any subject."""

from collections.abc import Mapping
from typing import Any

import orjson

from corelane.settings import Settings
from corelane.store.link.blocking import Link
from corelane.store.link.scripts import FOLDER, SHARED

#: The shared functions, and a call of the one that schedules.
SCRIPT = (
    "".join((FOLDER / f"{name}.lua").read_text() for name in SHARED)
    + """
local event, subject, owner, url, ttl, data, headers = unpack(ARGV)
return schedule_delivery(event, subject, owner, url, now_ms(), tonumber(ttl), 'data', data, headers)
"""
)


def schedule(
    settings: Settings,
    event: str,
    subject: str,
    owner: str,
    url: str,
    data: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
) -> str:
    """Schedule one event of a subject for a URL, once; its id."""
    link = Link(settings.redis_url)
    facts = (settings.results_ttl_s, orjson.dumps(data), orjson.dumps(headers or {}))
    found = link("EVAL", SCRIPT, 0, event, subject, owner, url, *facts)
    link.close()
    return str(found.decode())
