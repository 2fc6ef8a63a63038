"""The backlog: how long the cores need for the outstanding work, at the rate at which they drain it.

The gauge that scalers read, and ``Retry-After``, are both tokens divided by this rate.
"""

import itertools
from collections.abc import Iterable, Sequence

from corelane.store.link.link import CommonLink

#: The rate is measured over this many full seconds.
RATE_SECONDS = 10

#: The cores are busy in a second if they drain at least this part of what they can.
BUSY = 0.5

#: In a rate, the cores' own speeds weigh as much as this many seconds in which the cores were busy.
SPEEDS_WEIGH_S = 3.0

#: Tokens a second of a service in which no core has measured its speed yet: what one CPU core does in a small model.
UNKNOWN_RATE = 1000.0


def drain_rate(drained: Sequence[int], speeds: Iterable[float]) -> float:
    """Estimate how many tokens a second the cores drain while they have enough work.

    ``drained`` counts the tokens of the last full seconds, newest first. Seconds with little work are ignored.
    """
    known = sum(speeds)
    busy_from = BUSY * (known or max(drained, default=0))
    busy = list(itertools.takewhile(lambda tokens: tokens >= max(busy_from, 1), drained))
    weight_s = SPEEDS_WEIGH_S if known else 0.0
    return (weight_s * known + sum(busy)) / max(weight_s + len(busy), 1.0) or UNKNOWN_RATE


async def read_drain_rate(link: CommonLink) -> float:
    """Read how many tokens a second the cores with work drain; without a living core, the last speed of one."""
    drained, speeds = await link.run("drain_rates", seconds=RATE_SECONDS)
    return drain_rate([int(tokens) for tokens in drained], [float(speed) for speed in speeds if speed is not None])
