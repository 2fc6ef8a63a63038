"""Refusals: measures how accurate the times are that refused callers are told to wait.

A time is right if the job would fit exactly then. So a few refusals are remembered, at most one for each caller and
one for the whole service at a time, and compared with outstanding work once a second.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from corelane.log import get_logger

log = get_logger(__name__)

#: Most refusals that are watched at a time.
MOST = 32

#: A refusal is dropped after this many times the time that was told. It then counts with its error so far.
LONGEST = 4

#: Stands for the bound of the whole service, in place of an owner's name.
ALL_OWNERS = ""


@dataclass(frozen=True, slots=True)
class OpenRefusal:
    """One refused job, and what its caller was told. It fits once at most ``fits_at`` tokens are outstanding."""

    at_s: float
    told_s: int
    fits_at: int


class Refusals:
    """The refusals of one process that are still watched."""

    def __init__(self) -> None:
        self._watched: dict[str, OpenRefusal] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether no refusal is remembered."""
        return not self._watched

    def note(self, bound: str, told_s: int, fits_at: int) -> None:
        """Watch a refusal because of a bound: an owner's, or ``ALL_OWNERS``."""
        if len(self._watched) < MOST:
            self._watched.setdefault(bound, OpenRefusal(time.monotonic(), told_s, fits_at))

    def settle(self, owed: Mapping[tuple[str, int], int]) -> list[float]:
        """Remove the refusals that are over; return how far off their told times were, as shares of the true times.

        ``owed`` holds outstanding tokens by owner and priority.
        """
        errors = []
        for bound, refusal in list(self._watched.items()):
            outstanding = sum(tokens for (owner, _), tokens in owed.items() if bound in (ALL_OWNERS, owner))
            took_s = max(1.0, time.monotonic() - refusal.at_s)
            if outstanding <= refusal.fits_at or took_s > LONGEST * refusal.told_s:
                errors.append(abs(refusal.told_s / took_s - 1))
                del self._watched[bound]
                log.debug("retry_after_held", told_s=refusal.told_s, took_s=round(took_s, 1))
        return errors
