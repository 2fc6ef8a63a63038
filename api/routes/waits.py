"""How long the caller of a request on a short way waits."""

import re

from api.deps import preferred_wait
from api.jobs import CallerWait
from api.middleware.short_ways import Asked

#: A query that asks to wait and nothing else, for less than the longest wait that may be asked for.
WAIT_ALONE = re.compile(rb"wait=(\d{1,4}(?:\.\d{1,3})?)")


def wait_of(asked: Asked) -> CallerWait | None:
    """Return how long a caller on a short way waits; None if the query says anything else."""
    prefer, seconds = asked.headers.get("prefer"), None
    if asked.query:
        match = WAIT_ALONE.fullmatch(asked.query)
        if match is None:
            return None
        seconds = float(match[1])
    elif prefer is not None:
        seconds = preferred_wait(prefer)
    return CallerWait(None if seconds is None else min(seconds, asked.parts.settings.max_wait_s), asked.receive)
