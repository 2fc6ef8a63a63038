"""Measure two services in turn, in blocks A B B A, so that drift affects both equally.

There is a single run of the generator. Its requests are cut into slots of a fixed number, and each slot belongs to one
side. So a change of side costs nothing, and slots can be short: drift that is slower than a block of four cancels out.
``compare`` takes the difference within each block.

One process sends, so that there is one order of requests.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Literal
from uuid import uuid4

from corelane.plugins.lab.figures import Measurement, point_figures, summarise
from corelane.plugins.lab.generator import run_load
from corelane.plugins.lab.load import CORELANE_SENDER, RunPlan
from corelane.plugins.lab.schema import LoadPoint, Pairing, Request, ResultCheck, Run
from corelane.plugins.lab.senders import Manner, Reply, Sender, Target, make_sender
from corelane.plugins.lab.session import OnTick, described
from corelane.plugins.lab.workload import BenchItem, Workload

Side = Literal["A", "B"]

#: The sides of a block's slots. Drift in one direction affects both equally.
ORDER: tuple[Side, ...] = ("A", "B", "B", "A")

SIDES: tuple[Side, ...] = ("A", "B")

#: Number of blocks that shows a difference of 10 % on a machine whose speed drifts by as much
#: (`tests/bench/test_compare.py`).
BLOCKS = 10

#: Least requests in a slot: in all, and for each caller of a closed loop, as some overlap the previous slot.
SLOT_REQUESTS, SLOT_REQUESTS_PER_CALLER = 12, 6

#: The sender that sends to both sides.
SENDER = "corelane.plugins.lab.paired:BothSides"

#: The prefix that the sender puts before a job's id: the side and the number of the slot.
MARK = re.compile(r"([AB])(\d+) (.*)", re.DOTALL)

#: The target's options for ``BothSides``.
OTHER, SLOT = "ab_other", "ab_slot"


class BothSides:
    """Sends each request to the side that its slot belongs to, and marks the reply."""

    def __init__(self, target: Target, manner: Manner) -> None:
        options = dict(target.options)
        other = Target(**options.pop(OTHER))
        self._slot: int = options.pop(SLOT)
        self._sent = 0
        first = replace(target, options=options)
        self._sides: dict[Side, Sender] = {
            "A": make_sender(CORELANE_SENDER, first, manner),
            "B": make_sender(CORELANE_SENDER, other, manner),
        }

    async def open(self, connections: int) -> None:
        """Connect to both services in advance."""
        for sender in self._sides.values():
            await sender.open(connections)

    async def close(self) -> None:
        """Close all connections."""
        for sender in self._sides.values():
            await sender.close()

    async def send(self, index: int, items: Sequence[BenchItem]) -> Reply:
        """Send one request to the side that its slot belongs to."""
        slot = self._sent // self._slot
        self._sent += 1
        side = ORDER[slot % len(ORDER)]
        reply = await self._sides[side].send(index, items)
        reply.job = f"{side}{slot} {reply.job or ''}"
        return reply


def measure_pair(
    targets: tuple[Target, Target],
    workload: Workload,
    plan: RunPlan,
    *,
    blocks: int = BLOCKS,
    slot: int | None = None,
    on_tick: OnTick = lambda _tick: None,
) -> list[tuple[LoadPoint, Pairing]]:
    """Offer one load to two services in turn; return each service's point, with its place in the pair."""
    slot = slot or max(SLOT_REQUESTS, SLOT_REQUESTS_PER_CALLER * (plan.load.concurrency or 0))
    # The first and the last block are cut off by the ends of the measured part.
    needed = (blocks + 2) * len(ORDER) * slot
    plan = replace(plan, duration_s=None, requests=needed, processes=1, sender=SENDER)
    measured = run_load(both(*targets, slot), workload, plan, on_tick=on_tick)
    load = described(plan).model_copy(update={"detail": plan.load.detail | {"slot": slot}})
    session, order = uuid4().hex[:16], "".join(ORDER) * blocks
    slots = whole_blocks(measured.requests, blocks)
    found = []
    for side in SIDES:
        runs = [run_of(measured, requests, block) for block, its, requests in slots if its == side]
        point = LoadPoint(name=load.name, load=load, runs=runs, figures=point_figures(runs))
        found.append((point, Pairing(session=session, side=side, order=order)))
    return found


def both(first: Target, other: Target, slot: int) -> Target:
    """Return the target for ``BothSides``: the first service, with the other and the requests of a slot as options."""
    return replace(first, options=first.options | {OTHER: asdict(other), SLOT: slot})


def whole_blocks(requests: Sequence[Request], most: int) -> list[tuple[int, Side, list[Request]]]:
    """Return the requests of each slot of complete blocks, without the sender's mark, with the block and the side."""
    slots: dict[int, list[Request]] = defaultdict(list)
    for request in requests:
        found = MARK.fullmatch(request.job or "")
        if request.phase == "measured" and found is not None:
            slots[int(found[2])].append(request.model_copy(update={"job": found[3] or None}))
    width = len(ORDER)
    numbers = sorted({slot // width for slot in slots})[1:-1]
    whole = [block for block in numbers if all(slots.get(width * block + place) for place in range(width))][:most]
    return [
        (number, side, slots[width * block + place])
        for number, block in enumerate(whole)
        for place, side in enumerate(ORDER)
    ]


def run_of(measured: Measurement, requests: list[Request], block: int) -> Run:
    """Return the figures of one slot."""
    ok = [each for each in requests if each.outcome == "ok"]
    results = ResultCheck(
        checked=sum(each.items for each in ok),
        lost=sum(each.lost for each in ok),
        twice=sum(each.twice for each in ok),
    )
    if measured.results is not None and measured.results.differ_from_idle is not None:
        results.differ_from_idle = sum(each.wrong for each in ok)
    sent = [each.sent_s for each in requests if each.sent_s is not None]
    ended = [each.ended_s for each in requests if each.ended_s is not None]
    # From the first request sent to the last one ended. Whether the generator kept up is a fact of the session.
    window_s = min(sent, default=0.0), max(ended, default=0.0)
    run = summarise(replace(measured, requests=requests, window_s=window_s, results=results))
    run.block, run.timeline = block, []
    return run
