"""Two services measured in turn, in blocks A B B A, so that what drifts meanwhile meets both alike.

One run of the generator goes on all the time. Time is cut into slots, and each request goes to the service whose slot
it is sent in. So a change from one side to the other costs nothing, and slots can be short: what is slower than a block
of four cancels out. ``compare`` takes the difference within each block.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Literal
from uuid import uuid4

from corelane.bench.figures import point_figures, summarise
from corelane.bench.generator import Measured, Plan, Target, run_load
from corelane.bench.plan import CORELANE_SENDER
from corelane.bench.schema import AnswerCheck, Pairing, Point, Request, Run
from corelane.bench.senders import Manner, Reply, Sender, make_sender
from corelane.bench.session import OnTick, described
from corelane.bench.workload import Questions
from corelane.errors import InvalidInput
from corelane.quality.squad import Question

Side = Literal["A", "B"]

#: The sides of a block's slots. Drift in one direction meets both alike.
ORDER: tuple[Side, ...] = ("A", "B", "B", "A")

SIDES: tuple[Side, ...] = ("A", "B")

#: Blocks that see a difference of 10 % on a machine whose speed drifts by as much (`tests/bench/test_compare.py`).
BLOCKS = 10

#: Time of a slot, in seconds: many requests, and far less than drift takes.
SLOT_S = 1.0

#: A slot with fewer requests than this says little: slots should be longer.
FEW_REQUESTS = 5

#: The sender that sends to both.
SENDER = "corelane.bench.paired:BothSides"

#: What the sender puts before a job's id: the side and the number of the slot.
MARK = re.compile(r"([AB])(\d+) (.*)", re.DOTALL)

#: The options of the target that are the sender's own.
OTHER, SLOT, INNER = "ab_other", "ab_slot_s", "ab_sender"


class BothSides:
    """Sends each request to the side whose slot it is, and marks its reply."""

    def __init__(self, target: Target, manner: Manner) -> None:
        options = dict(target.options)
        other, inner = Target(**options.pop(OTHER)), options.pop(INNER)
        self._slot_s: float = options.pop(SLOT)
        first = replace(target, options=options)
        self._sides: dict[Side, Sender] = {
            "A": make_sender(inner, first, manner),
            "B": make_sender(inner, other, manner),
        }

    async def open(self, connections: int) -> None:
        """Connect ahead, to both."""
        for sender in self._sides.values():
            await sender.open(connections)

    async def close(self) -> None:
        """Close what was opened."""
        for sender in self._sides.values():
            await sender.close()

    async def send(self, index: int, questions: Sequence[Question]) -> Reply:
        """Send one request to the side whose slot it is."""
        # All processes have the same monotonic clock, so they are in the same slot.
        slot = int(monotonic() / self._slot_s)
        side = ORDER[slot % len(ORDER)]
        reply = await self._sides[side].send(index, questions)
        reply.job = f"{side}{slot} {reply.job or ''}"
        return reply


@dataclass(frozen=True, slots=True)
class Pair:
    """What a session measured of both sides, and how the two reports are tied together."""

    points: Mapping[Side, Point]
    session: str
    blocks: int
    notes: list[str]

    def pairing(self, side: Side) -> Pairing:
        """Return what ties a side's report to the other."""
        return Pairing(session=self.session, side=side, order="".join(ORDER) * self.blocks)


def measure_pair(
    targets: Mapping[Side, Target],
    questions: Questions,
    plan: Plan,
    *,
    name: str,
    blocks: int = BLOCKS,
    slot_s: float = SLOT_S,
    objective: str | None = None,
    on_tick: OnTick | None = None,
) -> Pair:
    """Offer one load to two services in turn and return the figures of each.

    Raises InvalidInput if no block is whole.
    """
    block_s = len(ORDER) * slot_s
    # The first block and the last are cut off by the measured part's ends.
    plan = replace(
        plan, warmup_s=max(plan.warmup_s, block_s), duration_s=(blocks + 2) * block_s, requests=None, sender=SENDER
    )
    measured = run_load(both(targets, slot_s), questions, plan, None, on_tick)
    slots = whole_blocks(measured.requests, blocks)
    if not slots:
        raise InvalidInput(
            "no block has requests in all its slots: give --slot more seconds, or the load more requests"
        )
    runs: dict[Side, list[Run]] = {"A": [], "B": []}
    for block, side, requests in slots:
        runs[side].append(run_of(measured, requests, block, objective))
    load = described(plan).model_copy(update={"detail": plan.load.detail | {"slot_s": slot_s}})
    points = {side: Point(name=name, load=load, runs=runs[side], figures=point_figures(runs[side])) for side in SIDES}
    found = 1 + max(block for block, _, _ in slots)
    notes = [f"{found} of {blocks} blocks are whole"] if found < blocks else []
    if min(len(requests) for _, _, requests in slots) < FEW_REQUESTS:
        notes.append(f"a slot has fewer than {FEW_REQUESTS} requests: give --slot more seconds")
    return Pair(points, uuid4().hex[:16], found, notes)


def both(targets: Mapping[Side, Target], slot_s: float) -> Target:
    """Return the target of the sender that sends to both."""
    a, b = targets["A"], targets["B"]
    other: dict[str, Any] = {
        "url": b.url,
        "api_key": b.api_key,
        "model": b.model,
        "options": b.options,
        "webhook_secret": b.webhook_secret,
    }
    return replace(a, options=a.options | {OTHER: other, SLOT: slot_s, INNER: CORELANE_SENDER})


def whole_blocks(requests: Sequence[Request], most: int) -> list[tuple[int, Side, list[Request]]]:
    """Return the requests of each slot of the whole blocks, with the number of the block and the side.

    Requests get the job ids that the service gave them.
    """
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


@dataclass(frozen=True, slots=True)
class Slot:
    """What was measured in one slot, for ``summarise``."""

    measured: Measured
    requests: list[Request]

    @property
    def generator(self) -> Any:
        """Whether the generator kept up, over the whole session."""
        return self.measured.generator

    @property
    def began_at(self) -> str:
        """When the session began."""
        return self.measured.began_at

    @property
    def window_s(self) -> tuple[float, float]:
        """From the first request that was sent to the last that ended."""
        sent = [each.sent_s for each in self.requests if each.sent_s is not None]
        ended = [each.ended_s for each in self.requests if each.ended_s is not None]
        return min(sent, default=0.0), max(ended, default=0.0)


def run_of(measured: Measured, requests: list[Request], block: int, objective: str | None) -> Run:
    """Return the figures of one slot."""
    is_checked = measured.answers is not None and measured.answers.differ_from_idle is not None
    ok = [each for each in requests if each.outcome == "ok"]
    answers = AnswerCheck(
        checked=sum(each.items for each in ok),
        lost=sum(each.lost for each in ok),
        twice=sum(each.twice for each in ok),
        differ_from_idle=sum(each.wrong for each in ok) if is_checked else None,
    )
    run = summarise(Slot(measured, requests), objective, None, answers)
    run.block, run.timeline = block, []
    return run
