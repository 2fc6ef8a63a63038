"""Points of the product at which a process of a test kills itself: right after a function has returned.

CHAOS_POINTS has them with their probabilities, as ``submit.accepted:0.3,feed.fed:1``. SIGKILL cleans nothing up.
"""

import functools
import importlib
import inspect
import os
import random
import signal
from collections.abc import Callable, Sequence
from typing import Any

#: The function of each point, as module, class and name, and what its reply and arguments must be like.
POINTS: dict[str, tuple[str, str, Callable[..., bool]]] = {
    "submit.accepted": ("corelane.store.jobs.store", "JobStore.submit", lambda *_: True),
    "feed.fed": ("corelane.store.feeding", "Feeder._feed_lines", lambda *_: True),
    "keeper.leases_returned": ("corelane.store.upkeep", "Upkeep.return_lapsed", lambda returned, *_: returned > 0),
    "input.part_noted": (
        "corelane.plugins.files.references.reading",
        "Parts.note",
        lambda _, parts, *__: parts.done.items > 0,
    ),
    "batch.planned": ("corelane.plugins.files.batches.task", "read_input", lambda *_: True),
    "batch.submitted": ("corelane.plugins.files.batches.input", "_submit", lambda *_: True),
    "batch.files_written": (
        "corelane.plugins.files.batches.output",
        "OutcomeFile.close",
        lambda _, file, record, name: name == "errors",
    ),
}


def arm(points: str) -> None:
    """Have this process kill itself at these points."""
    importlib.import_module("corelane.settings")  # plugins cannot be imported before it
    for text in points.split(","):
        point, _, chance = text.partition(":")
        if point == "submit.payloads_written":
            _arm_submit(point, float(chance))
        else:
            _arm_after(point, float(chance), *POINTS[point])


def _arm_after(point: str, chance: float, module: str, name: str, is_meant: Callable[..., bool]) -> None:
    place: Any = importlib.import_module(module)
    owner, _, name = name.rpartition(".")
    place = getattr(place, owner) if owner else place
    real = getattr(place, name)

    @functools.wraps(real)
    def wrapped(*given: Any) -> Any:
        reply = real(*given)
        if is_meant(reply, *given):
            reach(point, chance)
        return reply

    @functools.wraps(real)
    async def wrapped_coroutine(*given: Any) -> Any:
        reply = await real(*given)
        if is_meant(reply, *given):
            reach(point, chance)
        return reply

    setattr(place, name, wrapped_coroutine if inspect.iscoroutinefunction(real) else wrapped)


def _arm_submit(point: str, chance: float) -> None:
    """Write the payloads of a submit in a trip of their own, and perhaps die before the job is written."""
    from corelane.store.link.link import AsyncLink

    real = AsyncLink.many

    async def many(link: AsyncLink, commands: Sequence[Any]) -> list[Any]:
        if len(commands) > 1 and len(commands[-1]) > 1 and str(commands[-1][1]).endswith("_submit"):
            await real(link, commands[:-1])
            reach(point, chance)
        return await real(link, commands)

    AsyncLink.many = many  # type: ignore[assignment, method-assign]


def reach(point: str, chance: float) -> None:
    """Kill this process with this probability, and say so on standard error."""
    if random.random() < chance:
        os.write(2, f"fault point {point}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
