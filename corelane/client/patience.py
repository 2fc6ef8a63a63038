"""Wait for a service that is unreachable or overloaded: for how long, and when to ask again. Reads the clock.

Patience is a length of time. Its clock starts at the first failure and stops at a reply. So a service may be stopped
and started again within that time, whatever the pauses are. The last pause begins before the time is over, and ends
when the service asked for the next try.
"""

import random
import time
from dataclasses import dataclass

from corelane.errors import CorelaneError

#: How long a call is repeated by default, in seconds: a service takes about ten to stop and start.
PATIENCE_S = 60.0

#: First pause before a call is repeated, doubled each time; and the longest pause that the client chooses, so that a
#: service that is back is found soon. In seconds.
FIRST_PAUSE_S, LONGEST_OWN_PAUSE_S = 0.25, 8.0

#: Longest pause, whatever the service asks for, in seconds.
LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a call is not answered yet: it failed with ``reason`` and is sent again in ``seconds``.

    ``waited_s`` is the total of this call's earlier pauses, after ``attempt`` failures.
    """

    reason: CorelaneError
    seconds: float
    waited_s: float = 0.0
    attempt: int = 0


class Patience:
    """The successive failures of one call or stream, and the time since the first."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._attempt, self._waited_s, self._away_s = 0, 0.0, 0.0
        self._since: float | None = None

    def wait(self, failure: CorelaneError, retry_after: str | None = None, asked_s: float | None = None) -> Wait:
        """Return the wait before the next try; raise the failure once the patience is over.

        ``asked_s``, if given, is the whole pause.
        """
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if self._away_s + now - self._since >= self._patience_s:
            raise failure
        seconds = pause_s(self._attempt, retry_after, random.random()) if asked_s is None else asked_s
        wait = Wait(failure, seconds, self._waited_s, self._attempt)
        self._attempt, self._waited_s = self._attempt + 1, self._waited_s + seconds
        return wait

    def rests(self) -> None:
        """Stop the clock: a stream is open, even if no data has come yet."""
        if self._since is not None:
            self._away_s, self._since = self._away_s + time.monotonic() - self._since, None


def pause_s(attempt: int, retry_after: str | None, chance: float) -> float:
    """Return seconds until the next try: doubled each time, and at least what the service asked for, up to a limit.

    ``chance``, in [0, 1), spreads the pauses. It never shortens the time that the service asked for.
    """
    own = min(FIRST_PAUSE_S * 2.0 ** min(attempt, 16), LONGEST_OWN_PAUSE_S) * (1 + chance) / 2
    if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
        return min(max(own, float(retry_after) * (1 + chance / 4)), LONGEST_PAUSE_S)
    return own
