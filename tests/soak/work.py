"""What callers do in a soak run, each thing to its end: they follow it, check it, and delete it or let it expire."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

import orjson

from corelane.client import Client
from corelane.domain.batches import FINAL
from corelane.domain.jobs import DEFAULT_TASK
from tests.chaos.audit import Findings, examine_job
from tests.chaos.load import OTHERS, draw
from tests.tools.batches import numbers
from tests.tools.fleet import Fleet
from tests.tools.waiting import eventually

#: The model of each task.
MODELS = {
    DEFAULT_TASK: "default",
    "feature-extraction": "all-minilm-l6-v2",
    "text-classification": "topics",
    "handler": "sentiment",
}

#: How often one item alone is sent; the tasks of jobs: the audit reads no vectors as they are stored.
ALONE = {DEFAULT_TASK: 200, "feature-extraction": 120, "text-classification": 30, "handler": 30}
JOBS = [task for task in MODELS if task != "feature-extraction"]

#: All that is done, as often as it is.
DECK = [*Counter(ALONE | {"job": 12, "batch": 2}).elements()]

#: Items of a job; of one that is sent as lines; of a batch.
ITEMS, LINES, BATCH = (100, 200, 500, 1000), 5000, 400

#: Callers while the machine is measured; the share of what it did then that it is given later; callers then.
CLOSED, SHARE, OPEN = 8, 0.7, 48


@dataclass
class Work:
    """The work of one run, and what came of it. A short run divides the items of each job by ``shorter``."""

    fleet: Fleet
    client: Client
    raw: Any
    hook: str
    seed: int
    shorter: int
    #: What was done since the last row: its kind, the seconds since it was due, its items.
    done: list[tuple[str, float, int]] = field(default_factory=list)
    #: What was found of each job, and what went wrong besides.
    found: list[Findings] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    def measure(self, decks: int) -> float:
        """Do so many decks as fast as the machine can; return the seconds between two things at its share."""
        began, things = time.monotonic(), decks * len(DECK)
        with self._callers(CLOSED, islice(self._arrivals(0), things)):
            pass
        return (time.monotonic() - began) / things / SHARE

    @contextmanager
    def load(self, pace_s: float) -> Iterator[None]:
        """Have something due every ``pace_s`` in the mean, at random moments, whatever is done by then."""
        with self._callers(OPEN, self._arrivals(pace_s)):
            yield

    def _arrivals(self, pace_s: float) -> Iterator[tuple[str, int, float]]:
        rng, at, deck = random.Random(self.seed), time.monotonic(), list[str]()
        for number in self._numbers:
            deck = deck or rng.sample(DECK, len(DECK))
            at = at + rng.expovariate(1 / pace_s) if pace_s else time.monotonic()
            yield deck.pop(), number, at

    @contextmanager
    def _callers(self, callers: int, arrivals: Iterator[tuple[str, int, float]]) -> Iterator[None]:
        """Start so many callers. At the end all that is due by then is done."""
        over, lock = threading.Event(), threading.Lock()

        def call() -> None:
            while True:
                with lock:
                    due = next(arrivals, None)
                if due is None or ((wait_s := due[2] - time.monotonic()) > 0 and over.wait(wait_s)):
                    return
                self._do(*due)

        threads = [threading.Thread(target=call) for _ in range(callers)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def _do(self, kind: str, number: int, due: float) -> None:
        """Do one thing; whatever goes wrong is noted."""
        make = {"job": self._job, "batch": self._batch}.get(kind, self._one)
        try:
            items = make(kind, number, random.Random(number))
            self.done.append((kind, time.monotonic() - due, items))
        except Exception as error:
            self.problems.append(f"{kind}: {type(error).__name__}: {error}")

    def _one(self, task: str, _: int, rng: random.Random) -> int:
        text, times = f"The number is {rng.randint(0, 999)}. ", rng.randint(1, 20)
        item = OTHERS[task](text) if task in OTHERS else {"question": "What is the number?", "context": text * times}
        assert self.client.predict(MODELS[task], item).error is None
        return 1

    def _job(self, _: str, number: int, rng: random.Random) -> int:
        """Send a job twice under one key, follow it to its webhook, audit it, and delete half of them."""
        job = draw(rng, f"soak-{number}", 1, JOBS)
        job.total = max(2, (LINES if job.form == "lines" else rng.choice(ITEMS)) // self.shorter)
        job.head |= {"model": MODELS[job.task], "webhook": {"url": self.hook}, "keep_s": 60}
        media_type, content = job.body()
        headers = {"Content-Type": media_type, "Idempotency-Key": job.token}
        sent = [self.fleet.api.post("/v1/jobs", content=content, headers=headers) for _ in range(2)]
        [job.id] = {reply.raise_for_status().json()["id"] for reply in sent}
        if job.fate == "canceled":
            self.client.cancel(job.id)
        if rng.random() < 0.5:
            assert [event.type for event in self.client.iter_events(job.id)][-1] == "job.completed"
        self.client.wait(job.id)
        self.found.append(found := Findings())
        examine_job(found, self.client, self.fleet.api, self.raw, job)
        eventually(lambda: [each["state"] for each in self.client.deliveries(job.id)] == ["delivered"])
        if rng.random() < 0.5:
            self.client.delete(job.id)
        return job.total

    def _batch(self, _: str, number: int, __: random.Random) -> int:
        """Have a batch answered, of a file or of a list; check that each line is answered once; delete its files."""
        lines = numbers(0, max(2, BATCH // self.shorter))
        given: dict[str, Any] = {"requests": [orjson.loads(line) for line in lines]}
        if number % 2:
            file = ("in.jsonl", b"".join(lines))
            sent = self.fleet.api.post("/v1/files", data={"purpose": "batch"}, files={"file": file})
            given = {"input_file_id": sent.raise_for_status().json()["id"]}
        sent = self.fleet.api.post("/v1/batches", json=given | {"endpoint": "/v1/answers"}).raise_for_status()
        while (batch := self.client.get_batch(sent.json()["id"])).status not in FINAL:
            time.sleep(0.5)
        output = self.fleet.api.get(f"/v1/files/{batch.output_file_id}/content").raise_for_status().content
        assert [orjson.loads(line)["line"] for line in output.splitlines()] == list(range(1, len(lines) + 1))
        for file_id in (batch.input_file_id, str(batch.output_file_id)):
            self.client.delete_file(file_id)
        return len(lines)
