"""How fast a core is: estimated tokens a second while it has work. What forecasts are made of."""

from collections import deque

from corelane.promises import Speed

#: A sample is taken once the core has worked for so long since the last one and answered something, in seconds.
SAMPLE_S = 0.5

#: Samples that count: the last half minute of work.
SAMPLES = 60


class SpeedMeter:
    """Counts work and samples its speed. The drain adds, the heartbeat reads."""

    def __init__(self) -> None:
        self._tokens, self._seconds = 0, 0.0
        self._samples: deque[tuple[int, float]] = deque(maxlen=SAMPLES)

    def add(self, tokens: int, seconds: float) -> None:
        """So many estimated tokens were answered, so long was worked; waiting is not work."""
        self._tokens += tokens
        self._seconds += seconds
        if self._seconds >= SAMPLE_S and self._tokens:
            self._samples.append((self._tokens, self._seconds))
            self._tokens, self._seconds = 0, 0.0

    def speed(self) -> Speed | None:
        """The speed of late; None before the first sample."""
        samples = list(self._samples)
        if not samples:
            return None
        rates = sorted(tokens / seconds for tokens, seconds in samples)
        mean = sum(tokens for tokens, _ in samples) / sum(seconds for _, seconds in samples)
        return Speed(mean, min(mean, rates[len(rates) // 20]), max(mean, rates[-1 - len(rates) // 20]))
