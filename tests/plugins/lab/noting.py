"""A sender that notes when it sent and when it had the result, by a clock reading of its own."""

import time
from collections.abc import Sequence

from corelane.plugins.lab.senders import Reply
from corelane.plugins.lab.ways import CorelaneSender
from corelane.plugins.lab.workload import BenchItem

NAME = f"{__name__}:Noting"


class Noting(CorelaneSender):
    async def ask(self, reply: Reply, index: int, items: Sequence[BenchItem]) -> None:
        began_s = time.monotonic()
        await super().ask(reply, index, items)
        reply.detail = f"{began_s} {time.monotonic()}"


class Broken(CorelaneSender):
    async def ask(self, reply: Reply, index: int, items: Sequence[BenchItem]) -> None:
        raise AttributeError("not written yet")


BROKEN = f"{__name__}:Broken"


class Wordy(CorelaneSender):
    async def ask(self, reply: Reply, index: int, items: Sequence[BenchItem]) -> None:
        await super().ask(reply, index, items)
        reply.detail = "word " * 20_000


WORDY = f"{__name__}:Wordy"
