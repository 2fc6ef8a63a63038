"""Bulk actions over several cells: one cell after another, step by step, as the cursor says."""

from collections.abc import Mapping, Sequence

import orjson
from starlette.types import ASGIApp, Scope

from api.cells.calls import Reply, call, changed, json_reply
from corelane.domain.ids import ALPHABET, RANDOM_CHARS, TIME_CHARS, cell_of, is_job_id


def before_all(cell: str) -> str:
    """Return the cursor before every job of a cell."""
    return f"job_{cell}{ALPHABET[-1] * (TIME_CHARS + RANDOM_CHARS)}"


async def step(apps: Mapping[str, ASGIApp], cells: Sequence[str], scope: Scope, body: bytes) -> Reply:
    """Do one step in the cell that the body's cursor names, the first without one; go on to the next cell after it."""
    cell = cell_of_step(body, cells)
    asked = changed(scope, body=body)
    reply = await call(apps[cell], asked, body)
    if "route" in asked:
        scope["route"] = asked["route"]
    following = cells[cells.index(cell) + 1 :]
    if reply.status != 200 or not following:
        return reply
    result = reply.json()
    if result["has_more"]:
        return reply
    return json_reply(result | {"has_more": True, "next": before_all(following[0])})


def cell_of_step(body: bytes, cells: Sequence[str]) -> str:
    """Return the cell that a step is for; of a body that cannot be read the first, which says what is wrong."""
    try:
        after = orjson.loads(body).get("after")
    except (orjson.JSONDecodeError, AttributeError):
        after = None
    named = cell_of(after) if isinstance(after, str) and is_job_id(after) else ""
    return named if named in cells else cells[0]
