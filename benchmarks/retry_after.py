"""How well `Retry-After` holds: refused submissions under changing load, and when each would have been taken.

    python benchmarks/retry_after.py [--quick] [--situations FILE.json]

The whole service with the null engine, whose batches take half a second. In each of fourteen situations one to three
callers, after idle seconds or beside lone questions or at once, fill the service up to its bounds; then ten submissions
of different sizes are refused, and it is watched when so much has been answered that each would fit. Seeded. Writes
`results/retry_after.json`; with `--quick` there is one situation, and nothing is written. What the service knew
can be kept too: tests/corelane/retry_situations.json is made of it.
"""

import argparse
import http.client
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import redis

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.runs import is_quick, keep, service
from corelane.domain.forecast import Speed
from corelane.store.link.link import call

HERE = Path(__file__).parent

BATCH_S, QUICK_BATCH_S = 0.5, 0.02

#: Seconds before a situation, by what goes before it; none in a quick run.
BEFORE_S = {"idle": 11, "lone": 8, "at once": 0}

#: Bounds, in tokens: half a minute's work of two cores, and half of that for each caller.
MOST, OWN_MOST = 480_000, 240_000

BOUNDS: dict[str, Any] = {"max_outstanding_tokens": MOST, "max_owner_tokens": OWN_MOST}

#: The cost of the shortest item.
ITEM_TOKENS = 64

SITUATIONS, QUICK_SITUATIONS, REFUSALS = 14, 1, 10

CALLERS = ("one", "two", "three")


@dataclass
class Refusal:
    """One submission that was refused: whose, the tokens that must go first and those that may be left, when it was
    refused, what it was told, and what was true.
    """

    own: bool
    owner: str
    excess: int
    may_be_left: int
    at: float
    told_s: int
    took_s: float | None = None


@dataclass
class Situation:
    """What the service knew, and the refusals."""

    answered: list[int]
    speeds: list[str]
    owed: dict[str, int]
    refusals: list[Refusal] = field(default_factory=list)


class Caller:
    """Submits jobs under a key of its own."""

    def __init__(self, url: str, name: str) -> None:
        self._parts = urlsplit(url)
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {name}"}

    def submit(self, tokens: int) -> int | None:
        """None if a job of so many tokens is taken, else the seconds after which to come back."""
        items = [{"question": "What is it?", "context": "The number is 7."}] * max(1, tokens // ITEM_TOKENS)
        with closing(
            http.client.HTTPConnection(self._parts.hostname or "", self._parts.port, timeout=60)
        ) as connection:
            connection.request("POST", "/v1/jobs", orjson.dumps({"items": items}), self._headers)
            response = connection.getresponse()
            body = response.read()
        if response.status == 429:
            return int(response.headers["Retry-After"])
        if response.status >= 400:
            raise RuntimeError(body.decode())
        return None


def owed_by(raw: Any) -> Counter[str]:
    """Outstanding tokens by owner."""
    found: Counter[str] = Counter()
    for name, tokens in raw.hgetall("cl:owed").items():
        found[name.rpartition(":")[0]] += int(tokens)
    return found


@contextmanager
def lone_questions(url: str, wanted: bool) -> Iterator[None]:
    """Lone questions of a caller of their own, ten a second, if wanted."""
    stop = threading.Event()

    def ask() -> None:
        caller = Caller(url, "lone")
        while not stop.wait(0.1):
            caller.submit(ITEM_TOKENS)

    thread = threading.Thread(target=ask)
    if wanted:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if wanted:
            thread.join()


def owner_of(raw: Any, caller: Caller) -> str:
    """Return the name by which the service knows a caller who has nothing outstanding."""
    before = owed_by(raw)
    caller.submit(32 * ITEM_TOKENS)
    return next(iter((owed_by(raw) - before).keys()))


def fill(raw: Any, callers: dict[str, Caller], rng: random.Random) -> None:
    """Have callers submit jobs until the service, or each of them, has nearly as much as it may."""
    for name, caller in callers.items():
        while owed_by(raw)[name] < 0.8 * OWN_MOST and owed_by(raw).total() < 0.9 * MOST:
            if caller.submit(ITEM_TOKENS * rng.randint(16, 1000)) is not None:
                break


def refuse(raw: Any, callers: dict[str, Caller], rng: random.Random) -> Situation:
    """Submit what is too much, in different sizes, and note what is told."""
    answered, speeds = raw.execute_command(*call("drain_rates", seconds=10))
    situation = Situation(list(map(int, answered)), [speed for speed in speeds if speed], raw.hgetall("cl:owed"))
    for _ in range(REFUSALS):
        name, caller = rng.choice(list(callers.items()))
        owed = owed_by(raw)
        excess = int(owed[name] * rng.uniform(0.15, 0.95))
        tokens = OWN_MOST - owed[name] + excess
        at = time.monotonic()
        told = caller.submit(tokens)
        tokens = tokens // ITEM_TOKENS * ITEM_TOKENS
        own_excess, all_excess = owed[name] + tokens - OWN_MOST, owed.total() + tokens - MOST
        if told is not None:
            own = own_excess > all_excess
            excess, left = max(own_excess, all_excess), (OWN_MOST if own else MOST) - tokens
            situation.refusals.append(Refusal(own, name, excess, left, at, told))
    return situation


def watch(raw: Any, situation: Situation) -> None:
    """Note when each would have been taken."""
    left = list(situation.refusals)
    while left:
        now, owed = time.monotonic(), owed_by(raw)
        for refusal in list(left):
            if (owed[refusal.owner] if refusal.own else owed.total()) <= refusal.may_be_left:
                refusal.took_s = now - refusal.at
                left.remove(refusal)
        time.sleep(0.02)


def measure(url: str, raw: Any, count: int) -> list[Situation]:
    """All situations, one after the other."""
    rng = random.Random(1)
    named = [Caller(url, name) for name in CALLERS]
    callers = {owner_of(raw, caller): caller for caller in named}
    situations = []
    for number in range(count):
        chosen = dict(rng.sample(list(callers.items()), rng.randint(1, len(callers))))
        before = rng.choice(("idle", "lone", "at once"))
        with lone_questions(url, before == "lone"):
            time.sleep(0 if is_quick() else BEFORE_S[before])
            fill(raw, chosen, rng)
            situations.append(refuse(raw, chosen, rng))
            watch(raw, situations[-1])
        found = [(refusal.told_s, round(refusal.took_s or 0, 1)) for refusal in situations[-1].refusals]
        print(
            json.dumps({"situation": number, "before": before, "callers": len(chosen), "told, took": found}), flush=True
        )
        if rng.random() < 0.5:
            while owed_by(raw):
                time.sleep(0.1)
    return situations


def recorded(situation: Situation) -> dict[str, Any]:
    """Return the knowledge of the service and the true times, with made-up names."""
    names: dict[str, str] = {}
    owed = []
    for place, tokens in situation.owed.items():
        owner, _, priority = place.rpartition(":")
        owed.append((names.setdefault(owner, f"owner{len(names)}"), int(priority), int(tokens)))
    refusals = [(names[each.owner], each.own, each.excess, round(each.took_s or 0, 2)) for each in situation.refusals]
    return {"answered": situation.answered, "speeds": situation.speeds, "owed": owed, "refusals": refusals}


def main() -> int:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one situation, of cores that are faster")
    parser.add_argument("--situations", type=Path, help="keep what the service knew, and what was true")
    arguments = parser.parse_args()
    batch_s = QUICK_BATCH_S if arguments.quick else BATCH_S
    with (
        tempfile.TemporaryDirectory() as folder,
        service(Path(folder), target="null", log_level="warning", cores=2, null_batch_s=batch_s, **BOUNDS) as running,
        redis.Redis.from_url(running.redis_url, decode_responses=True) as raw,
    ):
        situations = measure(running.url, raw, QUICK_SITUATIONS if arguments.quick else SITUATIONS)
    refusals = [refusal for situation in situations for refusal in situation.refusals if refusal.took_s]
    errors = sorted(abs(refusal.told_s / (refusal.took_s or 1) - 1) for refusal in refusals)
    figures = {
        "refusals": len(refusals),
        "median_error": round(statistics.median(errors), 3),
        "error_p90": round(errors[int(0.9 * len(errors))], 3),
        "median_told_s": statistics.median(refusal.told_s for refusal in refusals),
        "cores_tokens_per_s": round(sum(Speed.decode(speed).mean for speed in situations[-1].speeds)),
    }
    print(json.dumps(figures, indent=2))
    if arguments.situations:
        arguments.situations.write_bytes(orjson.dumps([recorded(situation) for situation in situations]))
    keep("retry_after", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
