"""The forecast of the backlog: whether the waiting work will be done (the sign), and when. Pure.

Work is measured in tokens, like a core's speed; sentences count items. The arrivals are the change of the backlog plus
the results. The largest and the smallest change of the window do not count: one large job, or one that was canceled,
does not make a rate. No time is given if nearly as much arrives as is answered: it would be meaningless, and change
every second.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from corelane.domain.durations import MINUTE_S, duration
from corelane.domain.overview import Sign

#: Rates are measured over at most this time, in seconds: longer than a large batch takes.
WINDOW_S = 60.0

#: With fewer changes of the backlog than this, the rate of arrivals is unknown.
LEAST_CHANGES = 3

#: Waiting work is stalled if nothing was answered for this time, in seconds, and no core is at work.
STALL_S = 30.0

#: A backlog that will be done within this time, in seconds, does not count, whatever arrives.
KEEPS_UP_S = 5.0

#: A share of the speed. A time is given if the speed exceeds the arrivals by more than this; a growth is stated if the
#: arrivals exceed the speed by more than this.
MARGIN = 0.05

#: A backlog that lasted longer than this, in seconds, shows the real speed of the cores.
AMPLE_S = 10.0

#: A slower speed counts as none, in tokens a second: no core is that slow, and the forecast would never end.
LEAST_SPEED = 0.01


@dataclass(frozen=True, slots=True)
class BacklogSample:
    """The outstanding tokens at a time, and the tokens answered since the previous sample."""

    at_s: float
    tokens: int
    answered: int = 0


@dataclass(frozen=True, slots=True)
class Backlog:
    """The open work now. ``speed`` is what the cores with work can do, in tokens a second.

    ``stuck_tokens`` wait for versions that no living core holds; ``paused_tokens`` wait because of a pause;
    ``is_working`` says that a living core is at work; ``oldest_s`` is how long the oldest work has waited; ``reasons``
    say why work cannot continue, ``pauses`` what is paused and by whom.
    """

    items: int
    tokens: int
    speed: float
    stuck_tokens: int = 0
    is_working: bool = False
    oldest_s: float = 0.0
    reasons: Sequence[str] = ()
    paused_tokens: int = 0
    pauses: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class BacklogForecast:
    """The sign, the time when the backlog is done if it is known, and the rates behind both."""

    sign: Sign
    text: str
    backlog_s: float
    clear_in_s: float | None
    tokens_per_s: float
    arriving_tokens_per_s: float


def forecast_backlog(now: Backlog, samples: Sequence[BacklogSample]) -> BacklogForecast:
    """Forecast the backlog; ``samples`` are those of the last minutes, oldest first."""
    window = [sample for sample in samples if sample.at_s >= samples[-1].at_s - WINDOW_S]
    answering, arriving = rates(window)
    since = since_outage(window)
    speed = real_speed(now.speed, rates(since)[0], since)
    speed = speed if speed >= LEAST_SPEED else 0.0
    movable = max(0, now.tokens - now.stuck_tokens - now.paused_tokens)
    backlog_s = movable / speed if speed > 0 else 0.0

    def tell(sign: Sign, text: str, clear_in_s: float | None = None) -> BacklogForecast:
        return BacklogForecast(sign, text, backlog_s, clear_in_s, answering, arriving)

    if now.tokens <= 0 and now.items <= 0:
        return tell(Sign.IDLE, "nothing waits", 0.0)
    waiting = f"{now.items:,} waiting"
    if now.paused_tokens >= now.tokens > 0 and not now.is_working:
        return tell(Sign.PAUSED, f"{waiting}: {'; '.join(now.pauses)}")
    if _is_stalled(now, window):
        return tell(Sign.STALLED, f"{waiting}, nothing is answered: {_why(now.reasons)}")
    stuck = f"; some will not go on: {now.reasons[0]}" if now.stuck_tokens and now.reasons else ""
    if now.paused_tokens and now.pauses:
        stuck += f"; some is held up: {now.pauses[0]}"
    if speed <= 0:
        return tell(Sign.DRAINING, f"{waiting}; no core has measured its speed yet{stuck}")
    spare = speed - arriving
    if backlog_s > KEEPS_UP_S and spare < -MARGIN * speed:
        growth = -spare * now.items / now.tokens if now.tokens else 0.0
        return tell(Sign.GROWING, f"{waiting}, growing {_rate(growth)}, will not drain{stuck}")
    if backlog_s > KEEPS_UP_S and spare < MARGIN * speed:
        return tell(Sign.GROWING, f"{waiting}, as much arrives as is answered, will not drain{stuck}")
    clear_in_s = movable / (spare if backlog_s > KEEPS_UP_S else speed)
    return tell(Sign.DRAINING, f"{waiting}, clear in {duration(clear_in_s)}{stuck}", clear_in_s)


def rates(samples: Sequence[BacklogSample]) -> tuple[float, float]:
    """Return the tokens a second that were answered and that arrived, over these samples."""
    if len(samples) < 2 or samples[-1].at_s <= samples[0].at_s:
        return 0.0, 0.0
    seconds = samples[-1].at_s - samples[0].at_s
    answered = sum(sample.answered for sample in samples[1:])
    if len(samples) <= LEAST_CHANGES:
        return answered / seconds, 0.0
    came = sorted(
        (later.tokens - before.tokens + later.answered, later.at_s - before.at_s)
        for before, later in itertools.pairwise(samples)
    )
    counted = came[1:-1]
    counted_s = sum(lasted for _, lasted in counted)
    arrived = sum(tokens for tokens, _ in counted)
    return answered / seconds, max(0.0, arrived / counted_s) if counted_s > 0 else 0.0


def since_outage(samples: Sequence[BacklogSample]) -> Sequence[BacklogSample]:
    """Return the samples since the last standstill: an outage says nothing about the cores' speed."""
    began, last_s = 0, samples[0].at_s
    for index, sample in enumerate(samples):
        if sample.answered:
            began = index if sample.at_s - last_s > AMPLE_S else began
            last_s = sample.at_s
    return samples[began:]


def real_speed(speed: float, answering: float, samples: Sequence[BacklogSample]) -> float:
    """Return the speed of the cores: the measured one, if there was enough work in all the samples."""
    if len(samples) <= LEAST_CHANGES or samples[-1].at_s - samples[0].at_s < AMPLE_S or answering <= 0:
        return speed
    is_ample = all(sample.tokens > AMPLE_S * max(speed, answering) for sample in samples)
    return answering if is_ample or speed <= 0 else speed


def _is_stalled(now: Backlog, samples: Sequence[BacklogSample]) -> bool:
    """Return whether all waiting work is stuck, or nothing was answered for a while and no core works on it."""
    if now.is_working or now.tokens <= 0:
        return False
    if now.stuck_tokens >= now.tokens - now.paused_tokens:
        return True
    recent = [sample for sample in samples if sample.at_s > samples[-1].at_s - STALL_S]
    return now.oldest_s >= STALL_S and not any(sample.answered for sample in recent)


def _why(reasons: Sequence[str]) -> str:
    return (
        "; ".join(reasons) if reasons else "the cores that hold the model claim nothing; GET /v1/cores has the reasons"
    )


def _rate(items_s: float) -> str:
    """Return a rate of items in words."""
    if items_s >= 1:
        return f"{items_s:,.0f}/s"
    return f"{max(1, round(items_s * MINUTE_S)):,}/min"


class BacklogWatch:
    """The samples of the last minutes, as one process saw them."""

    def __init__(self) -> None:
        self._samples: list[BacklogSample] = []

    def look(self, now_s: int, tokens: int, answered: Sequence[int]) -> Sequence[BacklogSample]:
        """Add a sample unless this second has one; return the samples. ``answered`` is by second, newest first."""
        since_s = now_s - self._samples[-1].at_s if self._samples else math.inf
        if since_s > len(answered) or since_s < 0:
            self._samples = [BacklogSample(now_s, tokens)]
        elif since_s > 0:
            self._samples.append(BacklogSample(now_s, tokens, sum(answered[: int(since_s)])))
            self._samples = [sample for sample in self._samples if sample.at_s >= now_s - WINDOW_S]
        return self._samples
