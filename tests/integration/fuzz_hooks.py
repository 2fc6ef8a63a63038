"""How Schemathesis writes the bodies it does not know."""

import re
from typing import Any
from urllib.parse import unquote

import orjson
import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(context: Any, value: Any) -> bytes:
    """Write a body of lines: each element of a list is one; anything else is a line of its own."""
    if isinstance(value, bytes | str):
        return value if isinstance(value, bytes) else value.encode(errors="replace")
    values = value if isinstance(value, list) else [value]
    return b"\n".join(map(as_json, values))


def as_json(value: Any) -> bytes:
    """JSON, or something like it where there is none: numbers and texts that JSON cannot hold."""
    try:
        return orjson.dumps(value)
    except (orjson.JSONEncodeError, TypeError):
        return repr(value).encode(errors="replace")


#: A wait of less than a second, in a query or in `Prefer`.
SHORT = re.compile(r"(^|wait=)[-+]?(0+(\.\d*)?|\.\d+)(e.*)?$")


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Leave out what would rightly end in 503: `default` moved, `null` unloaded or wanted in another way, as nothing
    else is held; a dialect that may wait for less than a second.
    """
    named = case.path_parameters or {}
    body = case.body if isinstance(case.body, dict) else {}
    wishes = unquote(str(named.get("version", ""))) + str(body.get("model", "") if "core" in named else "")
    moves = case.method == "PUT" and named.get("alias") == "default"
    waits = [str((case.query or {}).get("wait", "")), str((case.headers or {}).get("prefer", ""))]
    return not (moves or "null" in wishes or any(map(SHORT.search, waits)))
