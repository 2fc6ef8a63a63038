"""Load for a chaos run: jobs of all sizes from several threads, and a record of what the service said it had taken.

Every item can be recognised by its id and its context, so that a result can be told from any other. A job counts as
accepted once the service answered with its id; what was refused or broke off is remembered too.
"""

import hashlib
import random
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx2
import orjson

from corelane.client import Client
from corelane.domain.jobs import DEFAULT_TASK, Result, ResultList
from corelane.errors import CorelaneError, ServiceError

#: Most items of a job.
MOST_ITEMS = 300

#: A job is followed for this long before its thread goes on to the next, in seconds.
FOLLOW_S = 15.0

#: Refusals that faults may cause: try again later.
FORESEEN = frozenset({429, 503})

#: Passages that the items of one job share.
SHARED = 3

#: Pause of a thread that only submits, in seconds, and the largest of its jobs.
STEADY_S, STEADY_ITEMS = 0.4, 3

#: API keys the load uses.
KEYS = ("key-0", "key-1", "key-2")

NDJSON = "application/x-ndjson"

#: The fields of an item of each other task, about a text.
OTHERS: dict[str, Callable[[str], dict[str, Any]]] = {
    "text-classification": lambda text: {"text": text},
    "zero-shot-classification": lambda text: {"text": text, "labels": ["parcel", "letter"]},
    "token-classification": lambda text: {"text": text},
    "feature-extraction": lambda text: {"text": text},
    "text-ranking": lambda text: {"query": "What is the number?", "texts": [text, "None of it."]},
    "handler": lambda text: {"text": text},
}

#: Results asked for in one page.
PAGE = 1000


@dataclass
class Submitted:
    """One job as its submitter knows it."""

    token: str
    total: int
    #: plain, canceled or expiring.
    fate: str
    #: json, shared (passages once for many items) or lines (fed from a file).
    form: str
    head: dict[str, Any]
    id: str = ""
    task: str = DEFAULT_TASK
    #: What was seen of each result the first time it was seen: index → digest.
    seen: dict[int, bytes] = field(default_factory=dict)
    #: Results that looked different when seen again.
    changed: int = 0

    @property
    def key(self) -> str:
        """The API key it is sent with, and may be looked at with."""
        return KEYS[zlib.crc32(self.token.encode()) % len(KEYS)]

    def look(self, results: Iterable[Result]) -> None:
        """Compare results with what was seen of them before."""
        for result in results:
            digest = hashlib.blake2b(result.model_dump_json().encode(), digest_size=8).digest()
            if self.seen.setdefault(result.index, digest) != digest:
                self.changed += 1

    def item_id(self, index: int) -> str:
        return f"{self.token}/{index}"

    def context(self, index: int) -> str:
        """Return the passage of an item; a few for all where they are shared."""
        number = index % SHARED if self.form == "shared" else index
        return f"The number of parcel {self.token} is {number}."

    def body(self) -> tuple[str, bytes]:
        """Media type and content of its request."""
        head = self.head
        if self.form == "shared":
            head = head | {"contexts": {str(number): self.context(number) for number in range(SHARED)}}
        items = [self._item(index) for index in range(self.total)]
        if self.form == "lines":
            return NDJSON, b"".join(orjson.dumps(part, option=orjson.OPT_APPEND_NEWLINE) for part in [head, *items])
        return "application/json", orjson.dumps(head | {"items": items})

    def _item(self, index: int) -> dict[str, Any]:
        item: dict[str, Any] = {"id": self.item_id(index)}
        if self.task != DEFAULT_TASK:
            return item | OTHERS[self.task](self.context(index))
        item["question"] = "What is the number?"
        if self.form == "shared":
            return item | {"context_id": str(index % SHARED)}
        return item | {"context": self.context(index)}


def make(token: str, total: int, fate: str = "plain", form: str = "json", **head: Any) -> Submitted:
    """Make a job of so many items, not sent yet."""
    return Submitted(token, total, fate, form, {"metadata": {"token": token}, **head})


def draw(rng: random.Random, token: str, most_items: int, tasks: Sequence[str] = (DEFAULT_TASK,)) -> Submitted:
    """Make a job of one of the tasks: mostly plain, some to be canceled, some that expire; half of them small."""
    total = rng.randint(1, 20) if rng.random() < 0.5 else rng.randint(1, most_items)
    fate = rng.choices(["plain", "canceled", "expiring"], [8, 1, 1])[0]
    form = rng.choices(["json", "shared", "lines"], [6, 1, 1])[0]
    head = {"expires_in_s": round(rng.uniform(0.2, 5), 2)} if fate == "expiring" else {}
    job = make(token, total, fate, form, priority=rng.choice(["normal", "normal", "high"]), **head)
    job.task = rng.choice(tasks)
    if job.task != DEFAULT_TASK:
        # The null engine's version of a task is named after it.
        job.head["model"] = job.task
        job.form = "json" if job.form == "shared" else job.form
    return job


class Load:
    """Submits from ``threads`` threads inside a ``with``; each follows its job before it sends the next. Beside them
    ``steady`` threads submit small jobs and follow none. The ends of jobs are told to ``hook``, if there is one.
    """

    def __init__(
        self,
        url: str,
        seed: int,
        threads: int = 8,
        most_items: int = MOST_ITEMS,
        steady: int = 0,
        hook: str = "",
        tasks: Sequence[str] = (DEFAULT_TASK,),
    ) -> None:
        self.accepted: list[Submitted] = []
        #: Tokens of jobs that the service refused, and of those where nobody knows.
        self.refused: list[str] = []
        self.unknown: list[str] = []
        #: Submits by what came of them: an HTTP status or the name of an error.
        self.outcomes: Counter[str] = Counter()
        #: Answers that should never come, whatever fails: a status and what was asked for.
        self.unforeseen: Counter[str] = Counter()
        self.url = url
        self._seed = seed
        self._most_items = most_items
        self._enough = threading.Event()
        self._failures: list[BaseException] = []
        self._hook = hook
        self._tasks = tasks
        self._threads = [
            threading.Thread(target=self._run, args=(n, n < threads), name=f"load-{n}") for n in range(threads + steady)
        ]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _run(self, number: int, follows: bool) -> None:
        rng = random.Random(f"{self._seed}/{number}")
        count = 0
        try:
            with httpx2.Client(base_url=self.url, timeout=10) as http, ExitStack() as stack:
                clients = {key: stack.enter_context(Client(self.url, key, patience_s=0)) for key in KEYS}
                while not self._enough.wait(rng.uniform(0.0, 0.4 if follows else 2 * STEADY_S)):
                    count += 1
                    most = self._most_items if follows else STEADY_ITEMS
                    job = draw(rng, f"{self._seed}-{number}-{count}", most, self._tasks)
                    if self._hook:
                        job.head["webhook"] = {"url": self._hook}
                    if self.submit(http, job) and follows:
                        self._follow(http, clients[job.key], job, rng)
        except BaseException as error:
            self._failures.append(error)

    def submit(self, http: httpx2.Client, job: Submitted) -> bool:
        """Send a job and note what came of it; whether it was accepted."""
        try:
            media_type, content = job.body()
            headers = {"Content-Type": media_type, "X-API-Key": job.key}
            response = http.post("/v1/jobs", content=content, headers=headers)
        except httpx2.HTTPError as error:
            self.outcomes[type(error).__name__] += 1
            self.unknown.append(job.token)
            return False
        self.outcomes[str(response.status_code)] += 1
        if response.status_code not in (200, 202):
            self._note(response.status_code, "POST of a job")
            self.refused.append(job.token)
            return False
        job.id = response.json()["id"]
        self.accepted.append(job)
        return True

    def _follow(self, http: httpx2.Client, client: Client, job: Submitted, rng: random.Random) -> None:
        """Look at the job and its results now and then until it is final, or for long enough."""
        deadline = time.monotonic() + FOLLOW_S
        cancel_at = time.monotonic() + rng.uniform(0, 1) if job.fate == "canceled" else None
        while time.monotonic() < deadline and not self._enough.is_set():
            try:
                if cancel_at is not None and time.monotonic() >= cancel_at:
                    client.cancel(job.id)
                    cancel_at = None
                is_final = client.get(job.id, wait_s=rng.uniform(0.1, 1.5)).status.is_final
                job.look(read_results(http, job))
                if is_final:
                    return
            except (CorelaneError, httpx2.HTTPError) as error:
                if isinstance(error, ServiceError):
                    self._note(error.status, f"{error.problem_code} for an accepted job: {error}")
                self._enough.wait(0.2)

    def _note(self, status: int, what: str) -> None:
        if status not in FORESEEN:
            self.unforeseen[f"{status} {what}"] += 1


def read_results(http: httpx2.Client, job: Submitted) -> list[Result]:
    """All results there are of a job, up to the first item that is not answered yet; raises httpx2.HTTPError."""
    results: list[Result] = []
    while True:
        params = {"limit": str(PAGE), "after": str(len(results))}
        response = http.get(f"/v1/jobs/{job.id}/results", params=params, headers={"X-API-Key": job.key})
        response.raise_for_status()
        page = ResultList.model_validate_json(response.content)
        results += page.data
        if not page.has_more or not page.data:
            return results
