"""One job of a million items through the queue plane: its speed, and how much Redis holds meanwhile.

    python benchmarks/big_job.py [--items N] [--quick]

The job is sent as lines to the null engine, its results are streamed and dropped as they are had.
"""

import http.client
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import redis

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.harness import is_quick, parser_of, serving

#: Results are dropped each time the reader has this many more.
DROP_EVERY = 10_000

#: Items are fed only while fewer results than this wait to be dropped.
RESULTS_WINDOW = 60_000

#: Time between samples, in seconds.
SAMPLE_S = 0.25


def make_lines(items: int) -> Iterator[bytes]:
    """Yield the body: the head, then items, a thousand lines at a time."""
    yield orjson.dumps({"results_window": RESULTS_WINDOW}, option=orjson.OPT_APPEND_NEWLINE)
    for start in range(0, items, 1000):
        yield b"".join(
            orjson.dumps(
                {"id": str(n), "question": "Which number?", "context": f"It is {n}."}, option=orjson.OPT_APPEND_NEWLINE
            )
            for n in range(start, min(start + 1000, items))
        )


class Memory:
    """Samples Redis' memory and the job's progress until told to stop."""

    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(url)
        self._stop = threading.Event()
        self._began = time.perf_counter()
        self._thread = threading.Thread(target=self._run)
        self.job = ""
        self.samples: list[dict[str, float]] = []

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_S) or not self.samples:
            info: Any = self._redis.info("memory")
            raw: Any = self._redis.hmget(f"cl:job:{{{self.job}}}", "fed", "succeeded", "dropped")
            fed, answered, dropped = (int(value or 0) for value in raw)
            at = round(time.perf_counter() - self._began, 2)
            mb = round(info["used_memory"] / 1e6, 2)
            self.samples.append({"s": at, "mb": mb, "fed": fed, "answered": answered, "dropped": dropped})


def connect(url: str) -> http.client.HTTPConnection:
    """Open a connection to the service."""
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=600)


def submit(url: str, items: int) -> str:
    """Send the job; its id."""
    connection = connect(url)
    headers = {"Content-Type": "application/x-ndjson"}
    connection.request("POST", "/v1/jobs", make_lines(items), headers, encode_chunked=True)
    response = connection.getresponse()
    job = orjson.loads(response.read())
    if response.status != 202:
        raise RuntimeError(job)
    return str(job["id"])


def read_and_drop(url: str, job: str, drop_every: int) -> int:
    """Stream every result, checking that each comes once and in order; how many came."""
    connection, dropper = connect(url), connect(url)
    connection.request("GET", f"/v1/jobs/{job}/results", headers={"Accept": "application/x-ndjson"})
    count = 0
    for line in connection.getresponse():
        result = orjson.loads(line)
        if (result["index"], result["id"]) != (count, str(count)):
            raise RuntimeError(f"result {count} is {result}")
        count += 1
        if count % drop_every == 0:
            dropper.request("DELETE", f"/v1/jobs/{job}/results?before={count}")
            dropper.getresponse().read()
    return count


def main() -> int:
    """Run the job and print what was seen."""
    parser = parser_of(__doc__)
    parser.add_argument("--items", type=int, default=1_000 if is_quick() else 1_000_000)
    items = parser.parse_args().items
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), target="null", model="null") as running,
        Memory(running.redis_url) as memory,
    ):
        began = time.perf_counter()
        memory.job = submit(running.url, items)
        uploaded = time.perf_counter()
        count = read_and_drop(running.url, memory.job, min(DROP_EVERY, items // 2))
        ended = time.perf_counter()
    used = [sample["mb"] for sample in memory.samples if sample["answered"] > 0] or [memory.samples[-1]["mb"]]
    figures = {
        "items": items,
        "results": count,
        "upload_s": round(uploaded - began, 2),
        "answer_s": round(ended - uploaded, 2),
        "items_per_s": round(items / (ended - uploaded)),
        "redis_mb_before": memory.samples[0]["mb"],
        "redis_mb_most": max(used[len(used) // 10 :]),
        "redis_mb_first_tenth": max(used[: len(used) // 10 + 1]),
        "redis_mb_at_end": memory.samples[-1]["mb"],
    }
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
