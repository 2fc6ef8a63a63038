"""A part of a fleet, and what its deaths mean: when it is relaunched, and when it is given up.

A part is *up* once it does its work, not merely once its process runs. One that was up and is then killed is relaunched
at once, however often. One that does not come up, or fails right after, is relaunched after growing pauses; if the
service needs it, it is given up after a few tries.
"""

import asyncio
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

#: Pauses before a part is relaunched, in seconds, after one death, two in a row, and so on; then always the last.
RELAUNCH_PAUSES_S = (0.2, 1, 2, 5, 10, 30)

#: A part that lived this long was healthy, in seconds: a broken one dies sooner.
STABLE_S = 15

#: A part without a probe counts as up after this time, in seconds.
PRESUMED_UP_S = 5

#: A part that is killed before it is up is given up after this many kills in a row. The cause is outside, such as a
#: lack of memory, and may be temporary.
MOST_KILLS = 30

#: A part that takes longer to come up has an issue, in seconds. A core that loads its model reports itself before.
SLOW_S = 60

#: Launches, and the seconds they fall into, beyond which a part does not stay up, however long each life was.
MOST_LAUNCHES, LAUNCHES_S = 5, 600

#: Exit statuses whose cause is outside the part: it was asked to end, or killed.
OUTSIDE_ENDS = (0, -signal.SIGTERM, -signal.SIGKILL)


@dataclass(slots=True)
class FleetPart:
    """One process to run: its name, how it starts, how long it may take to stop.

    The service ends when a ``needed`` part is given up; any other is always relaunched. ``is_up`` is called with the
    process id until it returns True. ``first_tries`` is how often a part that was never up may end by itself before it
    is given up. ``argv`` may be a function that is called at each launch; the process inherits ``fds``, and is pinned
    to ``cpus`` if any are given. ``comment`` returns what to add to a line that the part writes, if anything.
    """

    name: str
    argv: Sequence[str] | Callable[[], Sequence[str]]
    env: Mapping[str, str]
    needed: bool = True
    grace_s: float = 10
    first_tries: int = 6
    is_up: Callable[[int], Awaitable[bool]] | None = None
    comment: Callable[[str], str | None] | None = None
    fds: Sequence[int] = ()
    cpus: frozenset[int] = frozenset()
    #: Whether it is being stopped for good while others continue.
    is_leaving: bool = False
    process: asyncio.subprocess.Process | None = None
    history: "PartHistory" = field(default_factory=lambda: PartHistory())


@dataclass(slots=True)
class PartHistory:
    """The lives and deaths of a part."""

    launches: int = 0
    launched_at: datetime = datetime.min
    #: Since when nothing that it needs has been missing.
    began_at: datetime = datetime.min
    was_ever_up: bool = False
    is_up: bool = False
    #: Exit statuses of the lives in a row that ended badly.
    deaths: list[int] = field(default_factory=list)
    #: The last launches, and the exit status of the last life that ended.
    recent: deque[datetime] = field(default_factory=lambda: deque(maxlen=MOST_LAUNCHES + 1))
    last_status: int | None = None

    def launched(self) -> None:
        """Record a launch."""
        self.launches += 1
        self.launched_at = self.began_at = datetime.now(UTC)
        self.recent.append(self.launched_at)
        self.is_up = False

    def begins(self) -> None:
        """Record that the part has what it waited for."""
        self.began_at = datetime.now(UTC)

    def came_up(self) -> None:
        """Record that the part does its work."""
        self.is_up = self.was_ever_up = True

    def died(self, status: int, lived_s: float) -> None:
        """Record that the part ended without having been asked to."""
        is_bad = not self.is_up or (status not in OUTSIDE_ENDS and lived_s < STABLE_S)
        self.deaths = [*self.deaths, status] if is_bad else []
        self.last_status = status
        self.is_up = False

    def issue(self, now: datetime) -> str | None:
        """Return what is wrong with the part, or None: it does not stay up, or does not come up."""
        lives_s = (now - self.launched_at).total_seconds()
        recent = sum((now - at).total_seconds() < LAUNCHES_S for at in self.recent)
        ended = "" if self.last_status is None else f"; the last time it {describe_status(self.last_status)}"
        if self.deaths and (not self.is_up or lives_s < STABLE_S):
            return f"it does not come up, and was launched {self.launches} times{ended}"
        if recent > MOST_LAUNCHES:
            return f"it does not stay up, and was launched {self.launches} times{ended}"
        coming_s = (now - self.began_at).total_seconds()
        if not self.is_up and coming_s > SLOW_S:
            return f"it is not up {coming_s:.0f} s after its launch"
        return None

    @property
    def pause_s(self) -> float:
        """Time until the next launch, in seconds."""
        return RELAUNCH_PAUSES_S[min(max(len(self.deaths), 1), len(RELAUNCH_PAUSES_S)) - 1]

    def is_hopeless(self, first_tries: int) -> bool:
        """Return whether another launch would most likely end in the same way."""
        own = sum(status != -signal.SIGKILL for status in self.deaths)
        tries = len(RELAUNCH_PAUSES_S) if self.was_ever_up else first_tries
        return own >= tries or len(self.deaths) >= MOST_KILLS


def describe_status(status: int) -> str:
    """Return an exit status in words."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
