"""Traces of load: when requests came, and how large they were, as lines of JSON. Pure, except for the file itself.

A line is ``{"at_s": 0.0, "items": 1, "tokens": 312}``: seconds since the trace began, items in the request, and the
estimated tokens of all its windows, where they are known.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from corelane.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One request of a trace."""

    at_s: float
    items: int = 1
    tokens: int | None = None


def read_trace(path: Path) -> list[TraceEntry]:
    """Return the requests of a trace in order of time; raise InvalidInput if a line of it cannot be read."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    entries = [_entry(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not entries:
        raise InvalidInput(f'{path} has no requests: a trace has lines such as {{"at_s": 0.0, "items": 1}}')
    return sorted(entries, key=lambda entry: entry.at_s)


def write_trace(path: Path, entries: Iterable[TraceEntry]) -> None:
    """Write requests as a trace."""
    lines = ({"at_s": round(each.at_s, 6), "items": each.items, "tokens": each.tokens} for each in entries)
    known = ({name: value for name, value in line.items() if value is not None} for line in lines)
    path.write_bytes(b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in known))


def trace_hash(entries: Sequence[TraceEntry]) -> str:
    """Return a short digest of a trace's content, independent of the layout of its file."""
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(orjson.dumps([round(entry.at_s, 6), entry.items, entry.tokens]))
    return digest.hexdigest()[:16]


def _entry(path: Path, number: int, line: bytes) -> TraceEntry:
    try:
        given = orjson.loads(line)
        tokens = given.get("tokens")
        entry = TraceEntry(float(given["at_s"]), int(given.get("items", 1)), None if tokens is None else int(tokens))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidInput(f'{path}, line {number}: not a request such as {{"at_s": 0.0, "items": 1}}') from None
    if not 0 <= entry.at_s < float("inf") or entry.items < 1:
        raise InvalidInput(f"{path}, line {number}: `at_s` begins at 0, and `items` at 1")
    return entry
