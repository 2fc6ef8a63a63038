"""Deliveries of made-up events: what the library schedules as jobs begin and end, for any subject."""

from collections.abc import Mapping
from typing import Any

import orjson

from corelane.settings import Settings
from corelane.store.link.blocking import Link
from corelane.store.link.library import make_library, read_code

#: The library, with a function more that calls the one that schedules.
LIBRARY = make_library(
    read_code()
    + """
define('schedule', function(ask, args)
  return schedule_delivery(ask.event, ask.subject, ask.owner, ask.url, now_ms(), ask.ttl, 'data', args[2], args[3])
end)
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
    """Schedule one event of a subject for a URL, once; return its id."""
    link = Link(settings.redis_url)
    ask = {"event": event, "subject": subject, "owner": owner, "url": url, "ttl": settings.results_ttl_s}
    facts = [orjson.dumps(each) for each in (ask, data, headers or {})]
    _, found = link.many([LIBRARY.load, ("FCALL", f"{LIBRARY.name}_schedule", 0, *facts)])
    link.close()
    return str(found.decode())
