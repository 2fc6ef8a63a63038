"""Two API processes, three workers and a keeper answer 10,000 items, while one worker is killed and another is frozen
until its leases lapse. Every counter then equals the truth, whichever API is asked.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import free_port
from tests.tools.fleet import launch
from tests.tools.invariants import check_invariants
from tests.tools.redis import admin_url
from tests.tools.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

#: A batch takes its time and holds little, so that work is in flight when a worker is killed, which is missed soon.
SETTINGS = {
    "TARGET": "null",
    "MODEL": "null",
    "NULL_BATCH_S": "0.05",
    "CLAIM_TOKENS": "4096",
    "LEASE_S": "2",
    "HEARTBEAT_S": "0.4",
    "SWEEP_S": "0.2",
    "LOG_FORMAT": "json",
}

#: The hosts of the workers: more than this machine has cores.
HOSTS = ("killed", "frozen", "well")

#: Items of jobs, and how many jobs of that size: 10,000 items.
JOBS = {1: 50, 10: 45, 100: 45, 1000: 5}
ITEMS = sum(size * count for size, count in JOBS.items())

WAIT_S = 60

#: Longer than two flushes, in seconds.
SETTLED_S = 2.5

Samples = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


class ManyProcesses:
    """The processes of one service, each of which an operator could have started elsewhere."""

    def __init__(self, folder: Path, redis_url: str) -> None:
        self.redis: Any = redis.Redis.from_url(admin_url(redis_url), decode_responses=True)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CORELANE_")}
        places = {"REDIS_URL": redis_url, "DATA_DIR": str(folder)}
        self._env = clean | {f"CORELANE_{name}": value for name, value in (SETTINGS | places).items()}
        self._folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        ports = [free_port(), free_port()]
        self.apis = [httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) for port in ports]
        self._launch("keeper")
        for port in ports:
            self._launch(f"api-{port}", "api", "--port", str(port))
        for host in HOSTS:
            self._launch(host, "worker", "--core", "0", CORELANE_CORE_HOST=host)

    def wait_whole(self) -> None:
        """Wait until every core holds the model and both APIs answer."""
        eventually(lambda: len(self.holders()) == 3)
        eventually(lambda: all(self._answers(api) for api in self.apis))

    def holders(self) -> list[str]:
        """Return the cores that hold the version."""
        return [core for key in self.redis.scan_iter("cl:holders:*") for core in self.redis.zrange(key, 0, -1)]

    def send(self, name: str, sign: signal.Signals) -> None:
        """Send a signal to a process and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self.processes[name].pid, sign)

    def has_claim(self, host: str) -> bool:
        return any(lease.startswith(f"{host}/0#") for lease in self.redis.zrange("cl:leases", 0, -1))

    def has_logged(self, name: str, event: str) -> bool:
        return f'"event":"{event}"' in (self._folder / f"{name}.log").read_text()

    def freeze_at_work(self, host: str) -> None:
        """Stop a worker while it holds a claim."""
        while True:
            eventually(lambda: self.has_claim(host))
            self.send(host, signal.SIGSTOP)
            if self.has_claim(host):
                return
            self.send(host, signal.SIGCONT)

    def scrape(self, api: httpx2.Client) -> Samples:
        """Return the samples of our metrics."""
        found = {}
        for family in text_string_to_metric_families(api.get("/metrics").text):
            for sample in family.samples:
                found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
        return found

    def settled(self) -> list[Samples]:
        """Return what both APIs show once their counts have not changed for SETTLED_S."""
        shown, since, deadline = [self.scrape(api) for api in self.apis], time.monotonic(), time.monotonic() + WAIT_S
        while time.monotonic() - since < SETTLED_S:
            assert time.monotonic() < deadline, "the counts do not settle"
            time.sleep(0.1)
            now = [self.scrape(api) for api in self.apis]
            if list(map(counts_of, now)) != list(map(counts_of, shown)):
                since = time.monotonic()
            shown = now
        return shown

    def close(self) -> None:
        for name, process in self.processes.items():
            self.send(name, signal.SIGKILL)
            process.wait(60)
        for api in self.apis:
            api.close()
        self.redis.close()

    def _launch(self, name: str, *command: str, **env: str) -> None:
        argv = [sys.executable, "-m", "corelane", *(command or (name,))]
        self.processes[name] = launch(argv, self._env | env, self._folder / f"{name}.log")

    def _answers(self, api: httpx2.Client) -> bool:
        with suppress(httpx2.TransportError):
            return api.get("/readyz").is_success
        return False


@pytest.fixture
def service(redis_url: str, raw: redis.Redis, tmp_path: Path) -> Iterator[ManyProcesses]:
    service = ManyProcesses(tmp_path, redis_url)
    try:
        service.wait_whole()
        yield service
    finally:
        service.close()


def submit_all(service: ManyProcesses) -> Counter[str]:
    """Submit all jobs, to either API in turn; return how many requests got which status."""
    item = {"question": "What is it?", "context": "The number is 7."}
    bodies = [orjson.dumps({"items": [item] * size}) for size, count in JOBS.items() for _ in range(count)]

    def post(number: int) -> str:
        headers = {"Content-Type": "application/json"}
        return str(service.apis[number % 2].post("/v1/jobs", content=bodies[number], headers=headers).status_code)

    with ThreadPoolExecutor(4) as pool:
        return Counter(pool.map(post, range(len(bodies))))


def total(samples: Samples, name: str, **labels: str) -> float:
    wanted = labels.items()
    return sum(value for (found, its), value in samples.items() if found == name and wanted <= dict(its).items())


def test_every_counter_equals_the_truth_when_a_worker_is_killed(service: ManyProcesses) -> None:
    with ThreadPoolExecutor(1) as pool:
        submitting = pool.submit(submit_all, service)
        service.freeze_at_work("frozen")
        service.freeze_at_work("killed")
        service.send("killed", signal.SIGKILL)
        statuses = submitting.result()
    assert statuses == {"202": sum(JOBS.values())}
    eventually(lambda: not service.has_claim("killed") and not service.has_claim("frozen"))
    service.send("frozen", signal.SIGCONT)
    raw = service.redis
    eventually(lambda: not any(raw.scard(f"cl:open:{priority}") for priority in range(3)))
    # The frozen worker's answers come too late, and are thrown away; then the dead one's heartbeat is over.
    eventually(lambda: service.has_logged("frozen", "late_answers_refused"))
    eventually(lambda: not raw.exists("cl:core:killed/0") and not raw.zcard("cl:leases"))
    # What processes measured comes with their next flushes: all of it has, once no count changes for longer than those.
    shown = service.settled()
    assert check_invariants(raw) == []
    jobs = [raw.hgetall(key) for key in raw.scan_iter("cl:job:*", count=1000)]
    for samples in shown:
        assert total(samples, "corelane_jobs_submitted_total") == len(jobs) == sum(JOBS.values())
        assert total(samples, "corelane_items_submitted_total") == ITEMS
        assert total(samples, "corelane_items_total", outcome="succeeded") == ITEMS
        assert total(samples, "corelane_items_total", outcome="failed") == 0
        assert total(samples, "corelane_jobs_ended_total", status="succeeded") == len(jobs)
        assert total(samples, "corelane_job_seconds_count", priority="normal") == len(jobs)
        assert total(samples, "corelane_wait_seconds_count", priority="normal") == len(jobs)
        ends = sum(int(job["finished_ms"]) - int(job["created_ms"]) for job in jobs) / 1000
        assert total(samples, "corelane_job_seconds_sum") == pytest.approx(ends, abs=0.01)
        waits = sum(int(job["started_ms"]) - int(job["created_ms"]) for job in jobs) / 1000
        assert total(samples, "corelane_wait_seconds_sum") == pytest.approx(waits, abs=0.01)
        # Each item was answered once; those that were lost are counted with the attempt they were lost in.
        lost = total(samples, "corelane_attempts_total") - ITEMS
        assert lost > 0
        assert total(samples, "corelane_wasted_tokens_total", reason="core_lost") > 0
        assert total(samples, "corelane_attempts_total", attempt="2") >= lost > 0
        assert 2 <= total(samples, "corelane_leases_lapsed_total") <= lost
        posts = {"method": "POST", "route": "/v1/jobs"}
        assert total(samples, "corelane_http_requests_total", status="202", **posts) == statuses["202"]
        assert total(samples, "corelane_http_request_seconds_count", **posts) == statuses["202"]
        assert total(samples, "corelane_submit_seconds_count") == statuses["202"]
        assert total(samples, "corelane_core_up", core="killed/0") == 0
        assert total(samples, "corelane_core_up", core="frozen/0") == 1
        assert ("corelane_core_busy_ratio", (("core", "killed/0"),)) not in samples
        # The load of a worker that is killed before it has flushed it is not counted.
        assert 2 <= total(samples, "corelane_model_loads_total", outcome="loaded") <= 3
    # Both show the same counts, except of the scrapes themselves.
    assert counts_of(shown[0]) == counts_of(shown[1])


def counts_of(samples: Samples) -> Samples:
    return {key: value for key, value in samples.items() if is_count(*key)}


def is_count(name: str, labels: tuple[tuple[str, str], ...]) -> bool:
    """Whether a sample only grows with work, not with scrapes and heartbeats."""
    if name.startswith(("corelane_core_", "corelane_redis_")) or ("route", "/metrics") in labels:
        return False
    return name.endswith(("_total", "_count", "_sum", "_bucket"))
