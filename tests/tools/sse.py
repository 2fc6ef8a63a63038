"""Reading server-sent events in tests: whole blocks only, as the standard has it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import orjson


@dataclass(frozen=True)
class Told:
    """One event, or a block without data (``type`` is empty then)."""

    id: str
    type: str
    data: Any
    retry: int | None


def parse_blocks(pieces: Iterable[bytes]) -> Iterator[Told]:
    """Parse the blocks that are complete; a block that was cut off is no event."""
    buffer = b""
    for piece in pieces:
        *blocks, buffer = (buffer + piece).split(b"\n\n")
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.decode().splitlines() if not line.startswith(":"))
            if fields:
                data = orjson.loads(fields["data"]) if "data" in fields else None
                retry = int(fields["retry"]) if "retry" in fields else None
                yield Told(fields.get("id", ""), fields.get("event", ""), data, retry)


def read_story(api: httpx2.Client, path: str, last: str = "") -> list[Told]:
    """Read a stream's events to its proper end."""
    with api.stream("GET", path, headers={"Last-Event-ID": last} if last else {}) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        return [told for told in parse_blocks(response.iter_bytes()) if told.type]
