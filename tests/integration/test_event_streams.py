"""Streams of events from a real API process: cut and resumed, replayed, refused, ended. The tests are the cores."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest
import redis

from corelane.settings import Settings
from tests.conftest import free_port
from tests.corelane.store_bench import VERSION, Bench, answered, claimed
from tests.tools.proxy import Proxy, proxy_before
from tests.tools.redis import at_port
from tests.tools.sse import Told, parse_blocks, read_story
from tests.tools.waiting import eventually


class Api:
    """A process of `corelane api`."""

    def __init__(self, redis_url: str, folder: Path, **more: str) -> None:
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.log = folder / "api.log"
        self._env = dict(os.environ) | {"CORELANE_REDIS_URL": redis_url, "CORELANE_DATA_DIR": str(folder)} | more
        self.http = httpx2.Client(base_url=self.url, timeout=70)
        self.start()

    def start(self) -> None:
        """Start it, also again where it was; return once it answers."""
        argv = [sys.executable, "-m", "corelane", "api", "--port", str(self._port)]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, env=self._env)
        eventually(self._answers)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.http.get("/livez").status_code == 200
        except httpx2.TransportError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def streams(self) -> int:
        [line] = [line for line in self.http.get("/metrics").text.splitlines() if line.startswith("corelane_event_st")]
        return int(float(line.split()[1]))


@pytest.fixture(scope="module")
def api(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with Api(redis_url, tmp_path_factory.mktemp("api")) as api:
        yield api
        assert api.stop() == 0
        assert "Traceback" not in api.log.read_text()


@pytest.fixture
def own_api(redis_url: str, tmp_path: Path) -> Iterator[Api]:
    with Api(redis_url, tmp_path) as api:
        yield api


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    """Stands before Redis."""
    with proxy_before(int(redis_url.rpartition(":")[2].partition("/")[0])) as proxy:
        yield proxy


@pytest.fixture
def bench(settings: Settings, raw: redis.Redis, bell: str) -> Bench:
    return Bench(settings, raw, bell)


def events_path(job: str) -> str:
    return f"/v1/jobs/{job}/events"


def finish(bench: Bench, count: int = 3, **more: Any) -> str:
    core = bench.core("a/0")
    job = bench.submit(count, **more)
    claim = claimed(core)
    core.commit(claim.lease, answered(claim))
    return job


def answer_slowly(bench: Bench) -> None:
    """Answer a slice, tell so, and rest for a moment, until all is answered."""
    core = bench.core("a/0")
    while (claim := core.claim([VERSION], linger=False)) is not None:
        for outcome in answered(claim):
            bench.raw.hset(f"cl:job:{{{outcome.ref.job}}}", "notified_ms", 0)
            core.commit(claim.lease, [outcome])
            time.sleep(0.01)


def read_a_little(api: Api, job: str, last: str, most_bytes: int) -> list[Told]:
    """Return the part of a stream that a reader has if its connection breaks after so many bytes."""
    with api.http.stream("GET", events_path(job), headers={"Last-Event-ID": last} if last else {}) as response:
        assert response.status_code == 200
        return [told for told in parse_blocks(first_bytes(response, most_bytes)) if told.type]


def first_bytes(response: httpx2.Response, most: int) -> Iterator[bytes]:
    for piece in response.iter_bytes():
        yield piece[:most]
        most -= len(piece)
        if most <= 0:
            return


def test_stream_cut_and_resumed_a_hundred_times_tells_every_event_once(api: Api, bench: Bench) -> None:
    job = bench.submit(10_000)
    core = threading.Thread(target=answer_slowly, args=(bench,))
    core.start()
    chance, seen, connections = random.Random(6), list[Told](), 0
    while not seen or seen[-1].type != "job.completed":
        last = seen[-1].id if seen else ""
        most = chance.choice((300, 300, 300, 2500))
        seen += read_a_little(api, job, last, chance.randrange(1, most))
        connections += 1
    core.join()
    assert connections > 100
    ids = [told.id for told in seen]
    assert ids == [entry for entry, _ in bench.raw.xrange(f"cl:story:{{{job}}}")]
    assert len(set(ids)) == len(ids) > 300
    assert [told.type for told in seen][:1] == ["job.running"]
    succeeded = [told.data["counts"]["succeeded"] for told in seen if told.type == "job.progress"]
    assert succeeded == sorted(set(succeeded))
    assert seen[-1].data["counts"]["succeeded"] == 10_000
    eventually(lambda: api.streams() == 0)


def test_events_carry_what_is_documented_and_the_last_one_the_job_with_its_results(api: Api, bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(40)
    claim = claimed(core)
    bench.raw.hset(f"cl:job:{{{job}}}", "notified_ms", 0)
    for outcome in answered(claim):
        core.commit(claim.lease, [outcome])
    running, progress, completed = read_story(api.http, events_path(job))
    counts = {"total": 40, "succeeded": 0, "failed": 0, "canceled": 0, "expired": 0}
    assert (running.type, running.data.pop("at")[-1]) == ("job.running", "Z")
    assert running.data == {"job": job, "counts": counts}
    assert (progress.type, progress.data["counts"]) == ("job.progress", counts | {"succeeded": 32})
    assert completed.type == "job.completed"
    assert completed.data == api.http.get(f"/v1/jobs/{job}").json()
    assert [result["index"] for result in completed.data["results"]] == list(range(40))


def test_stream_follows_a_job_from_before_it_runs_to_its_end(api: Api, bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(3)
    with api.http.stream("GET", events_path(job)) as response:
        assert response.headers["cache-control"] == "no-cache"
        blocks = parse_blocks(response.iter_bytes())
        assert next(blocks) == Told("", "", None, 1000)
        claim = claimed(core)
        assert next(blocks).type == "job.running"
        core.commit(claim.lease, answered(claim))
        assert [told.type for told in blocks] == ["job.completed"]


def test_final_job_is_replayed_from_any_event_and_ends(api: Api, bench: Bench) -> None:
    job = finish(bench)
    running, completed = read_story(api.http, events_path(job))
    assert (running.type, completed.type) == ("job.running", "job.completed")
    assert read_story(api.http, events_path(job), running.id) == [completed]
    assert read_story(api.http, events_path(job) + f"?after={running.id}") == [completed]
    assert read_story(api.http, events_path(job) + f"?after={completed.id}", running.id) == [completed]
    assert read_story(api.http, events_path(job) + "?after=0") == [running, completed]
    assert read_story(api.http, events_path(job) + "?after=") == [running, completed]


def test_reader_who_has_the_last_event_is_told_not_to_come_back(api: Api, bench: Bench) -> None:
    job = finish(bench)
    last = read_story(api.http, events_path(job))[-1].id
    for response in (
        api.http.get(events_path(job), headers={"Last-Event-ID": last}),
        api.http.get(events_path(job), params={"after": last}),
    ):
        assert (response.status_code, response.content) == (204, b"")


def test_dropped_results_are_not_in_the_last_event_and_the_job_says_so(api: Api, bench: Bench) -> None:
    job = finish(bench, 40)
    bench.drop(job, 32)
    data = read_story(api.http, events_path(job))[-1].data
    assert (data["results"], data["results_from"]) == (None, 32)


def test_job_that_is_forgotten_meanwhile_ends_its_stream(api: Api, bench: Bench) -> None:
    job = bench.submit(3)
    with api.http.stream("GET", events_path(job)) as response:
        blocks = parse_blocks(response.iter_bytes())
        next(blocks)
        bench.raw.delete(f"cl:job:{{{job}}}")
        assert list(blocks) == []


def test_lines_of_a_job_that_is_deleted_meanwhile_are_not_taken_for_the_whole(api: Api, bench: Bench) -> None:
    path = f"/v1/jobs/{bench.submit(3)}"
    with api.http.stream("GET", f"{path}/results", headers={"Accept": "application/x-ndjson"}) as response:
        assert api.http.delete(path).status_code == 204
        with pytest.raises(httpx2.RemoteProtocolError):
            list(response.iter_bytes())


@pytest.mark.parametrize("text", ["soon", "1-2-3", "-1", "$", "+", "1" * 40])
def test_id_that_is_none_is_refused(api: Api, bench: Bench, text: str) -> None:
    job = finish(bench)
    for given in ({"headers": {"Last-Event-ID": text}}, {"params": {"after": text}}):
        response = api.http.get(events_path(job), **given)  # type: ignore[arg-type]
        assert (response.status_code, response.json()["code"]) == (422, "invalid_input")
        assert response.headers["content-type"] == "application/problem+json"


def test_whoever_waits_is_let_go_at_once_when_the_server_stops(own_api: Api, bench: Bench) -> None:
    api = own_api
    bench.core("a/0")
    job = bench.submit(3)
    got: dict[str, Any] = {}
    sent: list[str] = []

    def note(event: str, _: object) -> None:
        if event.endswith("send_request_body.complete"):
            sent.append(event)

    def follow() -> None:
        with api.http.stream("GET", events_path(job), extensions={"trace": note}) as response:
            got["blocks"] = list(parse_blocks(response.iter_bytes()))

    def poll() -> None:
        got["poll"] = api.http.get(f"/v1/jobs/{job}", params={"wait": 60}, extensions={"trace": note})

    def read_lines() -> None:
        options: dict[str, Any] = {"headers": {"Accept": "application/x-ndjson"}, "extensions": {"trace": note}}
        with api.http.stream("GET", f"/v1/jobs/{job}/results", **options) as response:
            try:
                got["lines"] = list(response.iter_bytes())
            except httpx2.RemoteProtocolError:
                got["lines"] = "cut"

    threads = [threading.Thread(target=each) for each in (follow, poll, read_lines)]
    for thread in threads:
        thread.start()
    eventually(lambda: api.streams() == 1 and len(sent) == 3)
    assert api.http.get(f"/v1/jobs/{job}").is_success  # what was sent before is under way
    assert api.stop() == 0
    for thread in threads:
        thread.join()
    start, end = got["blocks"]
    assert start.retry == 1000
    assert (end.type, end.id, end.data) == ("", "", None)
    assert 500 <= end.retry <= 2000
    assert (got["poll"].status_code, got["poll"].json()["status"]) == (200, "queued")
    assert got["lines"] == "cut"
    assert "Traceback" not in api.log.read_text()


def test_stream_goes_on_where_it_was_once_redis_is_back(
    proxy: Proxy, redis_url: str, bench: Bench, tmp_path: Path
) -> None:
    core = bench.core("a/0")
    job = bench.submit(3)
    claim = claimed(core)
    with (
        Api(at_port(redis_url, proxy.port), tmp_path) as api,
        api.http.stream("GET", events_path(job)) as response,
    ):
        blocks = parse_blocks(response.iter_bytes())
        assert [next(blocks).type, next(blocks).type] == ["", "job.running"]
        assert proxy.cut() >= 2
        core.commit(claim.lease, answered(claim))
        assert [told.type for told in blocks] == ["job.completed"]
