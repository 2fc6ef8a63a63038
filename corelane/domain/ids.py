"""Ids of jobs, files, batches and keys: KIND_ and text that sorts by time. Also times as callers see them."""

import secrets
import time
from datetime import UTC, datetime
from functools import lru_cache

#: Crockford's base 32, lower case: sorts like its value, and no letter can be mistaken for a digit.
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

#: The name of a service that is the only one, or the first behind a gateway. Ids begin with their service's name.
CELL = "0"

#: Characters of a job id for its time (48 bits of milliseconds), and random ones that cannot be guessed (80 bits).
TIME_CHARS, RANDOM_CHARS = 10, 16

#: A character for each byte value; each of the 32 characters occurs 8 times.
OF_BYTES = ALPHABET.encode() * 8


def new_id(kind: str, now_ms: int | None = None, cell: str = CELL) -> str:
    """Make an id, KIND_…. Ids of a service sort by time and cannot be guessed."""
    tail = secrets.token_bytes(RANDOM_CHARS).translate(OF_BYTES).decode()
    return id_time(kind, int(time.time() * 1000) if now_ms is None else now_ms, cell) + tail


def id_time(kind: str, ms: int, cell: str = CELL) -> str:
    """Return the beginning of ids made at ``ms``. It sorts after earlier ids, and before ids of ``ms`` or later."""
    value, chars = max(ms, 0), []
    for _ in range(TIME_CHARS):
        value, digit = divmod(value, 32)
        chars.append(ALPHABET[digit])
    return f"{kind}_{cell}{''.join(reversed(chars))}"


def is_id(kind: str, text: str) -> bool:
    """Return whether ``text`` has the form of an id of its kind. This keeps other texts out of Redis keys."""
    body = text.removeprefix(f"{kind}_")
    return text.startswith(f"{kind}_") and len(body) == 1 + TIME_CHARS + RANDOM_CHARS and set(body) <= set(ALPHABET)


def cell_of(text: str) -> str:
    """Return the service named in an id, or in the beginning of one; empty if there is none."""
    return text.partition("_")[2][:1]


def id_time_ms(text: str) -> int:
    """Return when an id was made, by its maker's clock, in milliseconds since 1970."""
    digits = text.partition("_")[2][1 : 1 + TIME_CHARS]
    return sum(ALPHABET.index(digit) * 32**place for place, digit in enumerate(reversed(digits)))


def new_job_id(now_ms: int | None = None, cell: str = CELL) -> str:
    """Make a job id."""
    return new_id("job", now_ms, cell)


def is_job_id(text: str) -> bool:
    """Return whether ``text`` has the form of a job id."""
    return is_id("job", text)


def iso_time(ms: int) -> str:
    """Format milliseconds since 1970 as RFC 3339 in UTC."""
    seconds, rest = divmod(ms, 1000)
    return f"{_iso_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=256)
def _iso_second(seconds: int) -> str:
    """Format a time in whole seconds; cached because the times of one job are mostly in the same second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
