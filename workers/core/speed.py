"""How fast a core is: estimated tokens a second while it has work. What forecasts are made of."""

from collections import deque
from dataclasses import dataclass

from corelane.domain.forecast import Speed

#: A sample is taken once the core has worked for so long since the last one and answered something, in seconds.
SAMPLE_S = 0.5

#: Samples that count: the last half minute of work.
SAMPLES = 60


@dataclass(slots=True)
class Sample:
    """Tokens answered, and seconds of work that it took."""

    tokens: int = 0
    seconds: float = 0.0


class SpeedMeter:
    """Counts work and samples its speed. The drain adds, the heartbeat reads.

    A core that is given less than it asks for runs small batches, and on a device these take as long as full ones. So
    samples of a core with enough to do are kept apart, and the others count only while there are none.
    """

    def __init__(self) -> None:
        self._counting = {True: Sample(), False: Sample()}
        self._samples: dict[bool, deque[Sample]] = {full: deque(maxlen=SAMPLES) for full in self._counting}

    def add(self, tokens: int, seconds: float, *, full: bool = True) -> None:
        """Count estimated tokens answered and the time worked; ``full`` if the core had as much as it asked for."""
        counting = self._counting[full]
        counting.tokens += tokens
        counting.seconds += seconds
        if counting.seconds >= SAMPLE_S and counting.tokens:
            self._samples[full].append(counting)
            self._counting[full] = Sample()

    def speed(self) -> Speed | None:
        """Return the speed of late, or None before the first sample."""
        samples = list(self._samples[True]) or list(self._samples[False])
        if not samples:
            return None
        rates = sorted(sample.tokens / sample.seconds for sample in samples)
        mean = sum(sample.tokens for sample in samples) / sum(sample.seconds for sample in samples)
        return Speed(mean, min(mean, rates[len(rates) // 20]), max(mean, rates[-1 - len(rates) // 20]))
