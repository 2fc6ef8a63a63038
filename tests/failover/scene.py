"""A service on a primary with a replica and Sentinels, under load, whose primary dies; and the audit afterwards.

What the replica had when the primary was dead is read from the replica itself, before it is promoted.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import orjson

from corelane.store import keys
from tests.failover.conftest import serve_null
from tests.tools.fleet import Fleet
from tests.tools.invariants import check_invariants
from tests.tools.receivers import Receiver
from tests.tools.servers import Replicated
from tests.tools.waiting import eventually

#: Jobs that must be accepted before the primary is touched, and while its replica is cut off.
BEFORE, MEANWHILE = 40, 20

#: Everything that was kept is answered this long after a promotion, in seconds.
SETTLE_S = 90

FINAL = ("succeeded", "failed", "canceled", "expired")


@dataclass
class Load:
    """Jobs sent by some threads inside a ``with``, and what the service said of each."""

    url: str
    hook: str
    threads: int = 4
    #: By id: how many items, and what was answered where the end was seen.
    accepted: dict[str, int] = field(default_factory=dict)
    ends: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    #: When jobs were accepted, in monotonic seconds.
    at: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._enough = threading.Event()
        self._running = [threading.Thread(target=self._run, args=(number,)) for number in range(self.threads)]

    def __enter__(self) -> "Load":
        for thread in self._running:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        for thread in self._running:
            thread.join()

    def _run(self, number: int) -> None:
        with httpx2.Client(base_url=self.url, timeout=30) as http:
            count = 0
            while not self._enough.is_set():
                count += 1
                try:
                    self._ask(http, f"{number}-{count}-{time.monotonic_ns()}", count)
                except httpx2.HTTPError as error:
                    self.statuses[type(error).__name__] += 1

    def _ask(self, http: httpx2.Client, token: str, count: int) -> None:
        """Send a job; every other one waits for its end."""
        items = [{"question": "Which?", "context": f"Parcel {token} is number {n}."} for n in range(1 + count % 3)]
        body: dict[str, Any] = {"items": items, "metadata": {"token": token}}
        if count % 4 == 0:
            body["webhook"] = {"url": self.hook}
        headers = {"Idempotency-Key": token} | ({"Prefer": "wait=5"} if count % 2 else {})
        response = http.post("/v1/jobs", json=body, headers=headers)
        self.statuses[str(response.status_code)] += 1
        if response.status_code in (200, 201, 202):
            job = response.json()
            self.accepted[job["id"]] = len(items)
            self.at[job["id"]] = time.monotonic()
            if job["status"] in FINAL:
                self.ends[job["id"]] = seen_end(job)
        elif response.status_code == 503:
            self._enough.wait(0.05)


@dataclass
class Findings:
    """What one promotion did."""

    accepted: int
    lost: int
    ends_undone: int
    promoted_s: float
    #: From the promotion to the first job that was accepted after it.
    recovered_s: float


def seen_end(job: dict[str, Any]) -> tuple[str, bytes]:
    """Return what must not change once it was told: the time of the end, and the answers."""
    return job["finished_at"], orjson.dumps(job.get("results"), option=orjson.OPT_SORT_KEYS)


class Scene:
    """The service and its Redis; each round ends with the other node as primary, and the dead one following it."""

    def __init__(self, folder: Path, hooks: Receiver, redis: dict[str, Any], settings: dict[str, str]) -> None:
        """``redis`` are options of ``Replicated``."""
        self.trio = Replicated(folder / "redis", **redis)
        self.hooks = hooks
        self._folder, self._settings = folder, settings
        self.fleet: Fleet | None = None

    def start(self) -> None:
        """Start all of it."""
        self.trio.start()
        self.fleet = serve_null(self._folder, self.trio.url, **self._settings)

    def stop(self) -> None:
        """End all of it."""
        try:
            if self.fleet is not None:
                assert self.fleet.stop() == 0
        finally:
            self.trio.stop()

    def promote_under_load(self, *, cut_first: bool) -> tuple[Findings, list[str]]:
        """Kill the primary under load and promote its replica, cut off before if ``cut_first``; audit."""
        assert self.fleet is not None
        old, [replica] = self.trio.primary, self.trio.replicas
        with Load(self.fleet.url, self.hooks.url) as load:
            eventually(lambda: len(load.accepted) >= BEFORE)
            if cut_first:
                self._cut_off(load)
            with old.client() as client:
                fence = int(client.get(keys.FENCE))
            old.kill()
            eventually(lambda: replica.replication()["master_link_status"] == "down")
            held = self._jobs_of(replica)
            began = time.monotonic()
            told, seen = {job for job, at in load.at.copy().items() if at < began}, dict(load.ends)
            self.trio.promote()
            promoted = time.monotonic()
            self.trio.follow(old)
            eventually(lambda: sum(at > promoted for at in load.at.copy().values()) >= BEFORE)
        recovered = min(at for at in load.at.values() if at > promoted)
        problems = self._audit(load, held, told - held, fence)
        undone = self._undone(seen)
        return Findings(len(told), len(told - held), len(undone), promoted - began, recovered - promoted), problems

    def _cut_off(self, load: Load) -> None:
        """Have the replica hear no more of the primary, and let the service go on for a while."""
        [replica] = self.trio.replicas
        with replica.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", "1")
        asked = sum(load.statuses.values())
        eventually(lambda: sum(load.statuses.values()) >= asked + MEANWHILE)

    @staticmethod
    def _jobs_of(node: Any) -> set[str]:
        with node.client() as client:
            return {key[len("cl:job:{") : -1] for key in client.scan_iter("cl:job:{*", count=1000)}

    def _audit(self, load: Load, held: set[str], lost: set[str], fence: int) -> list[str]:
        """Return what is wrong: a job that is lost or there though it should not be, or is answered otherwise than
        once.
        """
        with self.trio.primary.client() as raw:
            eventually(lambda: not self._open(raw, load.accepted), SETTLE_S)
            found = {job: raw.hgetall(keys.job(job)) for job in load.accepted}
            problems = list(self._problems_of(found, load, held))
            problems += [f"{job} was lost, and came back" for job in lost if found[job]]
            gone = {job for job in load.accepted if not found[job]}
            problems += [f"{job} is lost though it was accepted by the new primary" for job in gone - lost - held]
            ends = Counter(fields["job"] for _, fields in raw.xrange(keys.ENDS))
            problems += [f"{job} ended {times} times" for job, times in ends.items() if times > 1]
            if int(raw.get(keys.FENCE)) <= fence:
                problems.append("fences go back")
            eventually(lambda: not check_invariants(raw, self.trio.primary.url), 30)
        return problems

    def _problems_of(self, found: dict[str, dict[str, str]], load: Load, held: set[str]) -> Iterable[str]:
        assert self.fleet is not None
        for job, total in load.accepted.items():
            record = found[job]
            if not record:
                if job in held:
                    yield f"{job} was held by the replica, and is lost"
                elif (status := self.fleet.api.get(f"/v1/jobs/{job}").status_code) != 404:
                    yield f"{job} is lost, and the service answers {status}"
                continue
            page = self.fleet.api.get(f"/v1/jobs/{job}/results", params={"limit": 1000}).json()["data"]
            if [result["index"] for result in page] != list(range(total)):
                yield f"{job} has results {[result['index'] for result in page]} of {total} items"
            if record["status"] != "succeeded" or int(record["succeeded"]) != total:
                yield f"{job} is {record['status']} with {record['succeeded']} of {total} answers"

    @staticmethod
    def _open(raw: Any, jobs: Iterable[str]) -> list[str]:
        return [job for job in jobs if raw.hget(keys.job(job), "status") in ("queued", "running")]

    def _undone(self, ends: dict[str, tuple[str, bytes]]) -> list[str]:
        """Return the jobs whose end was told, and is another one now, or none."""
        assert self.fleet is not None
        undone = []
        for job, end in ends.items():
            response = self.fleet.api.get(f"/v1/jobs/{job}")
            if response.status_code != 200 or seen_end(response.json()) != end:
                undone.append(job)
        return undone
