"""How much of the time each core was at work, from the seconds of work that ``/metrics`` counts by core."""

import re

import httpx2

from corelane.client.transport import http_options
from corelane.client.wire import read_problem
from corelane.errors import ServiceUnreachable
from corelane.metrics.definitions import CORE_S

#: Work is counted with a core's next heartbeat, each second; in seconds.
COUNTED_S = 1.5

SAMPLE = re.compile(rf'^{CORE_S.name}{{core="([^"]*)"}} (\S+)$', re.MULTILINE)


async def core_seconds(url: str, api_key: str | None) -> dict[str, float]:
    """Return the seconds that each core has worked so far, by its name; raise an error if the service refuses."""
    try:
        async with httpx2.AsyncClient(**http_options(url, api_key)) as http:
            reply = await http.get("/metrics")
    except httpx2.HTTPError as error:
        raise ServiceUnreachable(f"{url} does not give its metrics: {error or type(error).__name__}") from None
    if reply.status_code != 200:
        raise read_problem(reply.status_code, reply.content)
    return {core: float(seconds) for core, seconds in SAMPLE.findall(reply.text)}


def busy_shares(before: dict[str, float], after: dict[str, float], seconds: float) -> dict[str, float]:
    """Return the share of some seconds that each core worked; a core that was started anew counts from 0."""
    worked = {core: now - before.get(core, 0.0) if now >= before.get(core, 0.0) else now for core, now in after.items()}
    return {core: round(min(1.0, spent / seconds), 4) for core, spent in sorted(worked.items())}
