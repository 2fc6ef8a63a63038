"""A million finished jobs in the store: pages of every kind, and Redis' memory. `make bench-queue` runs it.

    python benchmarks/million_jobs.py [--quick] [--jobs N]

A few real jobs are copied under new ids, spread over a day, as a version without an index left them. Then the running
keeper puts them into the index, and every kind of page is asked for over HTTP. One job in a thousand failed, one was
canceled; every hundred share a label, and one job has a label of its own.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parent.parent))

import orjson

from benchmarks.connections import Connection
from benchmarks.runs import is_quick, keep, service
from corelane.domain.ids import new_job_id
from corelane.store import keys
from corelane.store.link.blocking import Link
from corelane.store.link.library import Command

JOBS, QUICK_JOBS = 1_000_000, 1_000

#: Jobs written in one trip; requests of each kind.
TRIP_JOBS, REQUESTS = 500, 20

#: The jobs are spread over this time, and kept for it, in seconds.
DAY_S = 24 * 3600

OWNER = "public"

QUESTION = {
    "question": "How many names does the station have on the oldest map of the line?",
    "context": "The station has two names on the oldest map of the line. " * 4,
    "id": "question-1",
}


@dataclass(frozen=True, slots=True)
class Copied:
    """A job as Redis holds it."""

    fields: dict[bytes, bytes]
    results: dict[bytes, bytes]
    payloads: dict[bytes, bytes]


def copy(link: Link, job: str) -> Copied:
    """Read a final job."""

    def read(key: str) -> dict[bytes, bytes]:
        flat = link("HGETALL", key)
        return dict(zip(flat[::2], flat[1::2], strict=True))

    return Copied(read(keys.job(job)), read(keys.results(job)), read(keys.payloads(job)))


def make_templates(link: Link, connection: Connection) -> dict[str, Copied]:
    """Make one real job of each end, and read them."""
    done = connection.call("POST", "/v1/jobs", orjson.dumps(QUESTION), Prefer="wait=10")["id"]
    made = {"succeeded": copy(link, done)}
    for end in ("failed", "canceled"):
        # For a version that no core holds it stays open until it is ended.
        job = new_job_id()
        fields = made["succeeded"].fields | {b"status": b"queued", b"succeeded": b"0", b"left": b"1"}
        del fields[b"times"], fields[b"finished_ms"]
        link("HSET", keys.job(job), *(part for pair in fields.items() for part in pair))
        link("HSET", keys.payloads(job), 0, orjson.dumps([["question-1", QUESTION["question"], QUESTION["context"]]]))
        link("ZADD", keys.owner_jobs(OWNER), 0, job)
        if end == "failed":
            error = orjson.dumps({"code": "items_lost", "detail": "the file of its items was gone"}).decode()
            link.run("fail", job=job, ttl=DAY_S, error=error)
        else:
            link.run("cancel", job=job, ttl=DAY_S)
        made[end] = copy(link, job)
    return made


def job_commands(template: Copied, job: str, created_ms: int, labels: list[str]) -> Iterator[Command]:
    """Yield the commands that write a copy of a job as it stands once it is final."""
    fields = template.fields | {b"created_ms": b"%d" % created_ms}
    if labels:
        fields[b"labels"] = orjson.dumps(labels)
    for key, values in (
        (keys.job(job), fields),
        (keys.results(job), template.results),
        (keys.payloads(job), template.payloads),
    ):
        if values:
            yield ("HSET", key, *(part for pair in values.items() for part in pair))
            yield ("EXPIRE", key, DAY_S)
    yield ("ZADD", keys.owner_jobs(OWNER), 0, job)
    yield ("ZADD", keys.KEEPING, created_ms + 2000 * DAY_S, f"{OWNER}:{job}")


def fill(link: Link, templates: dict[str, Copied], count: int) -> list[str]:
    """Write so many jobs, oldest first; return their ids."""
    begin, jobs = int(time.time() * 1000) - 1000 * DAY_S, []
    commands: list[Command] = []
    for n in range(count):
        created_ms = begin + n * 1000 * DAY_S // count
        job = new_job_id(created_ms)
        end = {7: "failed", 8: "canceled"}.get(n % 1000, "succeeded")
        labels = [f"run-{n // 100}"] + (["needle"] if n == count // 3 else [])
        commands += job_commands(templates[end], job, created_ms, labels)
        jobs.append(job)
        if n % TRIP_JOBS == TRIP_JOBS - 1 or n == count - 1:
            link.many(commands)
            commands = []
    return jobs


def used_bytes(link: Link) -> int:
    """Return the memory that Redis' data take."""
    lines = link("INFO", "memory").decode().splitlines()
    return int(next(line for line in lines if line.startswith("used_memory:")).partition(":")[2])


def wait_for_index(link: Link, deadline_s: float) -> float:
    """Return the seconds until the keeper has put every job into the index."""
    began = time.monotonic()
    link("DEL", keys.INDEXING)
    while int(link("HGET", keys.INDEXED, OWNER) or 0) != link("ZCARD", keys.owner_jobs(OWNER)):
        if time.monotonic() > began + deadline_s:
            raise RuntimeError("the keeper did not put every job into the index")
        time.sleep(0.2)
    return time.monotonic() - began


def timed(ask: Callable[[], Any], times: int) -> tuple[dict[str, float], Any]:
    """Return the milliseconds of a request, and its last answer."""
    taken = []
    answer = None
    for _ in range(times):
        began = time.perf_counter()
        answer = ask()
        taken.append(1000 * (time.perf_counter() - began))
    return {"p50_ms": round(statistics.median(taken), 1), "max_ms": round(max(taken), 1)}, answer


def queries(jobs: list[str]) -> dict[str, dict[str, Any]]:
    """Return the pages that are asked for."""
    middle = jobs[len(jobs) // 2]
    return {
        "newest": {},
        "deep, by cursor": {"after": middle},
        "100 a page, deep": {"after": middle, "limit": 100},
        "one by label": {"label": "needle"},
        "a label of a hundred": {"label": "run-3"},
        "status failed": {"status": "failed"},
        "status canceled, deep": {"status": "canceled", "after": middle},
        "status running": {"status": "running"},
        "status succeeded, deep": {"status": "succeeded", "after": middle},
        "failed items": {"failed_items": "true"},
        "by id": {"q": middle},
        "by the beginning of an id": {"q": middle[:12]},
        "by a name that is not there": {"q": "report-2026-07"},
        "by model": {"model": "null"},
        "by a model that is not there": {"model": "none"},
        "label and model that exclude each other": {"label": "run-3", "model": "none"},
    }


def console_page(url: str, page: str) -> dict[str, list[str]]:
    """Return the rows of a table on a page of the console."""
    with urlopen(f"{url}/console/{page}", timeout=120) as answer:
        return {"rows": re.findall(r"<tr id=|<tr>\n *<td[ >]", answer.read().decode())}


def measure(link: Link, url: str, count: int) -> dict[str, Any]:
    """Fill the store, have it indexed, and ask for every kind of page."""
    requests = 3 if is_quick() else REQUESTS
    templates = make_templates(link, Connection(url))
    link("SET", keys.INDEXING, 1, "EX", 3600)
    before = used_bytes(link)
    began = time.monotonic()
    jobs = fill(link, templates, count)
    filled_s, filled = time.monotonic() - began, used_bytes(link)
    indexed_s = wait_for_index(link, 60 + count / 1000)
    indexed, connection = used_bytes(link), Connection(url)
    figures: dict[str, Any] = {
        "jobs": count,
        "filled_s": round(filled_s, 1),
        "indexed_s": round(indexed_s, 1),
        "bytes_per_job": round((filled - before) / count),
        "index_bytes_per_job_with_a_label": round((indexed - filled) / count),
        "pages": {},
    }
    print(json.dumps({name: value for name, value in figures.items() if name != "pages"}), flush=True)

    def show(name: str, ask: Callable[[], Any], size: str) -> Any:
        taken, answer = timed(ask, requests)
        figures["pages"][name] = taken | {"found": len(answer[size])}
        print(f"{name:44} {taken['p50_ms']:8.1f} ms, at most {taken['max_ms']:8.1f} ms, {len(answer[size])} found")
        return answer

    for name, params in queries(jobs).items():
        path = f"/v1/jobs?{urlencode(params)}"
        found = show(name, lambda path=path: connection.call("GET", path), "data")  # type: ignore[misc]
        if name == "one by label" and [job["id"] for job in found["data"]] != [jobs[count // 3]]:
            raise RuntimeError("the labelled job was not found")
    show("failed items as a list", lambda: connection.call("GET", "/v1/failed-items"), "data")
    body = orjson.dumps({"action": "retry", "filter": {"status": ["failed"]}, "dry_run": True})
    for page in ("jobs", "jobs?label=needle", "jobs?status=failed", f"jobs?after={jobs[count // 2]}", "failed-items"):
        show(f"console: {page[:30]}", lambda page=page: console_page(url, page), "rows")  # type: ignore[misc]
    show("a step of a bulk retry, dry run", lambda: connection.call("POST", "/v1/jobs/bulk", body), "jobs")
    return figures


def main() -> int:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a thousand jobs, no figures kept")
    parser.add_argument("--jobs", type=int, default=JOBS, help="jobs in the store")
    count = QUICK_JOBS if (given := parser.parse_args()).quick else given.jobs
    with (
        tempfile.TemporaryDirectory() as folder,
        service(Path(folder), target="null", model="null", log_level="warning") as running,
    ):
        link = Link(running.redis_url, timeout_s=60)
        if not is_quick():
            # Its file would be rewritten several times while the store fills.
            link("CONFIG", "SET", "appendonly", "no")
        keep("million_jobs", measure(link, running.url, count))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
