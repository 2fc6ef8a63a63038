"""What an attempt's reply means, and when to try again. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

#: The receiver is gone for good: it wants no more.
GONE = 410

#: The receiver asks for a pause; so does its host, for its other deliveries.
BUSY = frozenset({429, 503})

#: A status below 500 that still says that the host is not well.
TIMED_OUT, TOO_MANY = 408, 429

#: Longest pause that a receiver may ask for with Retry-After, for a delivery and for all of its host, in seconds.
LONGEST_RETRY_AFTER_S, LONGEST_HOST_PAUSE_S = 6 * 3600.0, 600.0

#: Share by which a pause is lengthened at random, at most: events that failed together do not come back together.
JITTER = 0.2

DAY_S = 24 * 3600.0

Outcome = Literal["delivered", "gone", "failed"]


@dataclass(frozen=True, slots=True)
class Reply:
    """One attempt's end. ``status`` is 0 if there was none, and ``error`` says why; ``snippet`` begins the body."""

    status: int
    duration_ms: int
    snippet: str = ""
    error: str | None = None
    retry_after: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from an attempt: pauses in seconds; None if the delivery is not tried again."""

    outcome: Outcome
    is_host_well: bool
    pause_s: float | None
    host_pause_s: float


def judge(reply: Reply, tries: int, pauses_s: Sequence[float], roll: float, now: datetime) -> Verdict:
    """The verdict on the attempt number ``tries``, counted from 1; ``roll`` is random, from 0 to 1."""
    is_well = 0 < reply.status < 500 and reply.status not in (TIMED_OUT, TOO_MANY)
    if 200 <= reply.status < 300:
        return Verdict("delivered", True, None, 0)
    if reply.status == GONE:
        return Verdict("gone", True, None, 0)
    asked_s = retry_after_s(reply.retry_after, now)
    host_pause_s = min(asked_s, LONGEST_HOST_PAUSE_S) if reply.status in BUSY else 0.0
    if tries > len(pauses_s):
        return Verdict("failed", is_well, None, host_pause_s)
    pause_s = max(pauses_s[tries - 1], min(asked_s, LONGEST_RETRY_AFTER_S)) * (1 + JITTER * roll)
    return Verdict("failed", is_well, pause_s, host_pause_s)


def window_s(pauses_s: Sequence[float]) -> float:
    """How long a delivery is kept alive behind a host that fails: a day, or as long as its pauses may take."""
    return max(DAY_S, sum(pauses_s) * (1 + JITTER))


def retry_after_s(header: str | None, now: datetime) -> float:
    """The seconds a Retry-After header asks for, as a number or a date (RFC 9110); 0 if it cannot be read."""
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:10])
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds())
