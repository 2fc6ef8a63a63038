"""One API over two cells, each with a Redis of its own: every route, a cell that is away, and owners that moved."""

import asyncio
import importlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pkgutil import iter_modules
from typing import Any

import orjson
import pytest
import redis
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from api import routes
from api.app import create_app
from api.cells import cell as cell_module
from api.cells.ways import Kind, Way, way_of
from api.middleware import key_cache
from corelane.cli.redis_server import find_server, server_argv
from corelane.domain.api_keys import Scope, unchecked_owner
from corelane.domain.cells import rendezvous
from corelane.domain.contexts import context_id
from corelane.domain.ids import age_key, cell_of, new_id, new_job_id, on_cell
from corelane.domain.overview import Overview
from corelane.errors import SetupError
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.api_keys import ApiKeyStore
from corelane.store.cell_keys import CellKeys
from corelane.store.fleet import Announcer
from corelane.store.link.blocking import Link
from corelane.store.plans import Plans
from corelane.store.schema import require_schema
from tests.api.office import ONE
from tests.conftest import free_port
from tests.corelane.store_bench import VERSION, Bench, answered, claimed
from tests.waiting import eventually

CONSOLE = True

LINE = '{"custom_id": "a", "method": "POST", "url": "/v1/answers", "body": {"question": "who", "context": "ada"}}\n'


SUMMARY = {
    "name": "tiny",
    "target": "null",
    "dtype": "fp32",
    "buckets": [],
    "max_length": 64,
    "no_answer_threshold": 0.0,
    "created_at": "2026-11-22T00:00:00.000Z",
}


class Server:
    """A Redis that can be killed and started again."""

    def __init__(self, argv: list[str], url: str) -> None:
        self._argv, self.url = argv, url
        self.raw = redis.Redis.from_url(url, decode_responses=True)
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._argv, stdout=subprocess.DEVNULL)
        for _ in range(600):
            try:
                self.raw.ping()
                return
            except (redis.ConnectionError, redis.exceptions.BusyLoadingError):
                if self._process.poll() is not None:
                    raise
                time.sleep(0.05)
        raise RuntimeError("Redis did not start")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    port = free_port()
    argv = server_argv(find_server(), tmp_path_factory.mktemp("cell-1"), port)
    server = Server(argv, f"redis://127.0.0.1:{port}/0")
    yield server
    server.raw.close()
    server.kill()


@dataclass
class World:
    """An API over two cells, and what stands behind each."""

    api: TestClient
    benches: dict[str, Bench]
    secrets: dict[str, str] = field(default_factory=dict)

    def call(self, method: str, path: str, who: str = "", status: int = 200, **sent: Any) -> Any:
        headers = dict(sent.pop("headers", {}))
        if who:
            headers["Authorization"] = f"Bearer {self.secrets.get(who, who)}"
        self.last = self.api.request(method, path, headers=headers, **sent)
        assert self.last.status_code == status, self.last.text
        kind = self.last.headers.get("content-type", "")
        return self.last.json() if "json" in kind and self.last.content else self.last.text

    def submit(self, who: str = "", **more: Any) -> str:
        job: str = self.call("POST", "/v1/jobs", who, 202, json=ONE | more)["id"]
        return job

    def pages(self, path: str, who: str = "") -> list[Any]:
        """Return what all pages list."""
        found: list[Any] = []
        after = ""
        while True:
            page = self.call("GET", f"{path}{after}", who)
            found += page["data"]
            if not page["has_more"]:
                return found
            after = f"&after={page['next'] if 'next' in page else page['last_id']}"

    def keys(self, *names: str, scopes: Sequence[Scope] = tuple(Scope), cells: str = "01") -> None:
        """Make keys whose owners are in turn in these cells."""
        links = {cell: Link(bench.settings.redis_url) for cell, bench in self.benches.items()}
        store = CellKeys(links)
        for name, cell in zip(names, cells, strict=False):
            self.secrets[name] = store.create(name, scopes, owner=name, cell=cell)[1]

    def beat(self) -> None:
        """Have both cells' cores send a whole heartbeat."""
        told = {"state": "idle", "pid": 1, "node": "n", "queue": "q", "cpus": "0", "versions": f'["{VERSION}"]'}
        for cell, bench in self.benches.items():
            facts = told | {"busy": 0, "items": 1, "reasons": "[]"}
            with closing(Plans(bench.settings, f"{cell}/0", "")) as plans:
                plans.announce(VERSION, SUMMARY, ["default"])
            Announcer(bench.settings, f"{cell}/0").beat(facts, [VERSION], [])

    def answer(self, outcome: str = "succeeded") -> None:
        """Have both cells' cores answer what waits."""
        for cell, bench in self.benches.items():
            core = bench.core(f"{cell}/0")
            while bench.waiting():
                claim = claimed(core)
                core.commit(claim.lease, answered(claim, outcome))


@contextmanager
def running(settings: Settings, raw: redis.Redis, second: Server, bell: str, **changes: Any) -> Iterator[World]:
    second.raw.flushall()
    text = SecretStr(f"0={settings.redis_url},1={second.url}")
    config = settings.model_copy(update={"cells": text} | changes)
    each = config.of_cells()
    benches = {"0": Bench(each["0"], raw, bell), "1": Bench(each["1"], second.raw, bell)}
    for cell, bench in benches.items():
        bench.core(f"{cell}/0")
    with TestClient(create_app(config), raise_server_exceptions=False) as client:
        yield World(client, benches)


def text_of(cell: str) -> str:
    """Return a text sent as a key whose owner is at home in a cell."""
    return next(text for n in range(100) if rendezvous(unchecked_owner(text := f"k{n}"), ("0", "1")) == cell)


@pytest.fixture
def world(settings: Settings, raw: redis.Redis, second: Server, bell: str) -> Iterator[World]:
    with running(settings, raw, second, bell, auth="off") as world:
        yield world


@pytest.fixture
def guarded(
    settings: Settings, raw: redis.Redis, second: Server, bell: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    """Yield a world that checks keys, and notices changes of them soon."""
    monkeypatch.setattr(key_cache, "POLL_S", 0.1)
    with running(settings, raw, second, bell, auth="required") as world:
        yield world


def by_age(jobs: Sequence[str]) -> list[str]:
    return sorted(jobs, key=age_key, reverse=True)


def test_ids_lead_home_and_lists_are_merged(world: World) -> None:
    left, right = text_of("0"), text_of("1")
    jobs = [world.submit(who) for who in (left, right, left, right)]
    assert [cell_of(job) for job in jobs] == ["0", "1", "0", "1"]
    for who, job in zip((left, right), jobs[:2], strict=True):
        assert world.call("GET", f"/v1/jobs/{job}", who)["status"] == "queued"
    # Everyone who sends no key is one owner, whose jobs are spread.
    spread = [world.submit(labels=["x"]) for _ in range(12)]
    assert {cell_of(job) for job in spread} == {"0", "1"}
    assert [job["id"] for job in world.pages("/v1/jobs?limit=5")] == by_age(spread)
    assert [job["id"] for job in world.pages("/v1/jobs?limit=4&label=x")] == by_age(spread)
    world.call("GET", "/v1/jobs?limit=5")
    assert 'rel="next"' in world.last.headers["link"]
    world.answer("failed")
    assert [item["job"] for item in world.pages("/v1/failed-items?limit=5")] == by_age(spread)
    job = spread[0]
    assert world.call("GET", f"/v1/jobs/{job}/results")["data"][0]["status"] == "failed"
    assert "job.completed" in world.call("GET", f"/v1/jobs/{job}/events")
    again = world.call("POST", f"/v1/jobs/{job}/retry", status=202)["id"]
    assert cell_of(again) == cell_of(job)
    world.call("POST", f"/v1/jobs/{again}/cancel")
    world.call("DELETE", f"/v1/jobs/{again}", status=204)
    world.call("GET", f"/v1/jobs/{again}", status=404)
    assert "cell '7'" in world.call("GET", f"/v1/jobs/{on_cell(job, '7')}", status=404)["detail"]
    assert "not a cursor" in world.call("GET", "/v1/jobs?after=nonsense", status=422)["detail"]


def test_names_and_keys_of_requests_find_the_same_cell_again(world: World) -> None:
    for who in ("", text_of("1")):
        for name in ("a", "b", "c", "d"):
            made = [world.call("PUT", f"/v1/jobs/{name}", who, 202, json=ONE)["id"] for _ in range(3)]
            assert len(set(made)) == 1
            assert world.call("GET", f"/v1/jobs/{name}", who)["id"] == made[0]
            keyed: dict[str, Any] = {"headers": {"Idempotency-Key": name}, "json": ONE}
            assert len({world.call("POST", "/v1/jobs", who, 202, **keyed)["id"] for _ in range(3)}) == 1
    world.call("GET", "/v1/jobs/no-such-name", status=404)


def test_files_and_batches_stay_in_the_cell_of_their_file(world: World) -> None:
    form: dict[str, Any] = {"files": {"file": ("a.jsonl", LINE)}, "data": {"purpose": "batch"}}
    files = [world.call("POST", "/v1/files", **form)["id"] for _ in range(8)]
    assert {cell_of(file) for file in files} == {"0", "1"}
    assert [file["id"] for file in world.pages("/v1/files?limit=3")] == by_age(files)
    assert [file["id"] for file in world.pages("/v1/files?limit=3&order=asc")] == by_age(files)[::-1]
    assert world.call("GET", f"/v1/files/{files[0]}/content") == LINE
    asked = {"endpoint": "/v1/answers", "completion_window": "24h"}
    batches = [world.call("POST", "/v1/batches", json=asked | {"input_file_id": file})["id"] for file in files]
    assert [cell_of(batch) for batch in batches] == [cell_of(file) for file in files]
    assert [batch["id"] for batch in world.pages("/v1/batches?limit=3")] == by_age(batches)
    world.call("POST", f"/v1/batches/{batches[0]}/cancel")
    assert world.call("DELETE", f"/v1/files/{files[0]}")["deleted"]
    world.call("POST", "/v1/batches", status=422, content=b"{", headers={"content-type": "application/json"})
    world.call(
        "POST", "/v1/batches", status=413, json=asked | {"input_file_id": files[0], "metadata": {"a": "x" * 300_000}}
    )


def test_contexts_are_where_the_jobs_that_name_them_are_made(world: World) -> None:
    text = "Ada wrote it."
    name = context_id(text)
    one = {"question": "who", "context_id": name}
    sent: dict[str, Any] = {"content": text, "headers": {"content-type": "text/plain"}}
    # Jobs without a key are spread, so what they may name is in every cell.
    world.call("PUT", f"/v1/contexts/{name}", "", 201, **sent)
    world.call("PUT", f"/v1/contexts/{name}", "", 200, **sent)
    assert {cell_of(world.call("POST", "/v1/jobs", "", 202, json=one)["id"]) for _ in range(12)} == {"0", "1"}
    assert world.call("GET", f"/v1/contexts/{name}/text") == text
    world.call("DELETE", f"/v1/contexts/{name}", status=204)
    world.call("DELETE", f"/v1/contexts/{name}", status=404)
    world.call("POST", "/v1/jobs", "", 422, json=one)
    right = text_of("1")
    world.call("POST", "/v1/contexts", right, 201, json={"text": text})
    assert [each["id"] for each in world.call("GET", "/v1/contexts", right)["data"]] == [name]
    assert cell_of(world.call("POST", "/v1/jobs", right, 202, json=one)["id"]) == "1"
    assert not list(world.benches["0"].raw.scan_iter("cl:contexts_of:*"))
    world.call("PUT", f"/v1/contexts/{name}", right, 422, content="other", headers={"content-type": "text/plain"})


def test_every_cell_has_every_webhook_secret_also_one_that_is_new(guarded: World, second: Server) -> None:
    guarded.keys("ann", "ops")
    made = guarded.call("POST", "/v1/webhook-secrets", "ann", 201, json={})
    rotated = guarded.call("POST", "/v1/webhook-secrets/rotate", "ops", 201, json={}, params={"owner": "ann"})
    guarded.call("DELETE", f"/v1/webhook-secrets/{made['id']}", "ann", 204)
    kept = [bench.raw.hgetall(keys.SECRETS) for bench in guarded.benches.values()]
    assert kept[0] == kept[1]
    assert [each.get("value") for each in orjson.loads(kept[0]["ann"])] == [rotated["secret"], None]
    second.raw.delete(keys.SECRETS)
    links = {cell: Link(bench.settings.redis_url) for cell, bench in guarded.benches.items()}
    assert [CellKeys(links).sync(), CellKeys(links).sync()] == [1, 0]
    assert second.raw.hgetall(keys.SECRETS) == kept[0]
    second.kill()
    try:
        guarded.call("POST", "/v1/webhook-secrets/rotate", "ann", 503, json={})
    finally:
        second.start()
    assert guarded.benches["0"].raw.hgetall(keys.SECRETS) == kept[0]


def test_the_fleet_is_shown_and_steered_as_one(world: World) -> None:
    jobs = [world.submit() for _ in range(8)]
    world.answer()
    world.beat()
    cores = world.call("GET", "/v1/cores")["data"]
    assert [(core["core"], core["cell"]) for core in cores] == [("0/0", "0"), ("1/0", "1")]
    [model] = world.call("GET", "/v1/models")["data"]
    assert model["cores"] == ["0/0", "1/0"]
    assert world.call("GET", "/v1/models/default")["id"] == VERSION
    world.call("GET", "/v1/models/nothing", status=404)
    seen = world.call("GET", "/v1/overview")
    Overview.model_validate(seen)
    assert [core["name"] for core in seen["cores"]] == ["0/0", "1/0"]
    assert world.call("GET", "/v1/history")["object"] == "history"
    metrics = world.call("GET", "/metrics")
    assert {family.type for family in text_string_to_metric_families(metrics)} == {"counter", "gauge", "histogram"}
    assert metrics.count("# TYPE corelane_items_total") == 1
    assert {cell for cell in "01" if f'corelane_open_jobs{{cell="{cell}",priority="normal"}}' in metrics} == {"0", "1"}
    assert world.call("GET", "/readyz")["cores"] == 2
    [total] = world.call("GET", "/v1/usage")["total"] or [{"items": 0}]
    assert total["items"] in (0, len(jobs))
    assert world.call("GET", "/v1/usage?format=csv").startswith("day,month,key,model,")
    # A change is made in every cell; a core is in one.
    world.call("PUT", "/v1/aliases/blue", json={"version": VERSION})
    assert [alias["alias"] for alias in world.call("GET", "/v1/aliases")["data"] if alias["is_set"]] == ["blue"]
    other = "other@0123456789ab"
    assert world.call("POST", "/v1/cores/1/0/models", status=202, json={"model": other})["cores"] == ["1/0"]
    world.call("POST", "/v1/cores/9/9/models", status=404, json={"model": other})
    lines = world.pages("/v1/audit?limit=1")
    assert [line["action"] for line in lines] == ["model.load", "alias.set", "alias.set"]
    world.benches["1"].core("1/1")
    world.benches["0"].raw.hset("cl:closed", VERSION, 1)
    said = world.call("PUT", "/v1/aliases/green", status=409, json={"version": VERSION})["detail"]
    assert said.startswith("cell 0: ")
    assert "done in cell 1, not in cell 0" in said
    result = {"has_more": True, "next": None}
    done = 0
    while result["has_more"]:
        asked = {"action": "retry", "filter": {"status": ["succeeded"]}, "after": result["next"]}
        result = world.call("POST", "/v1/jobs/bulk", json=asked)
        done += result["matched"]
    assert done == len(jobs)


def test_a_cell_that_is_away_takes_its_own_jobs_alone(world: World, second: Server) -> None:
    left, right = text_of("0"), text_of("1")
    jobs = {cell_of(job := world.submit(who)): job for who in (left, right)}
    spread = [world.submit() for _ in range(8)]
    second.kill()
    try:
        problem = world.call("GET", f"/v1/jobs/{jobs['1']}", right, 503)
        assert problem["code"] == "store_unavailable"
        assert problem["detail"].startswith("cell 1: ")
        assert world.call("GET", f"/v1/jobs/{jobs['0']}", left)["status"] == "queued"
        world.submit(left)
        world.call("POST", "/v1/jobs", right, 503, json=ONE)
        # Lists tell what they lack; jobs without an owner go where a cell answers.
        page = world.call("GET", "/v1/jobs?limit=100")
        assert [job["id"] for job in page["data"]] == [job for job in by_age(spread) if cell_of(job) == "0"]
        assert world.last.headers["corelane-cells-missing"] == "1"
        assert {cell_of(world.submit()) for _ in range(6)} == {"0"}
        assert world.call("GET", "/readyz")["details"]["cell 1"]["state"] == "red"
        assert any(each["part"] == "cell 1" for each in world.call("GET", "/v1/overview")["troubles"])
        world.call("GET", "/metrics")
        assert "not in cell 1" in world.call("PUT", "/v1/aliases/x", status=503, json={"version": VERSION})["detail"]
    finally:
        second.start()
    eventually(lambda: world.api.get(f"/v1/jobs/{jobs['1']}", headers={"x-api-key": right}).status_code == 200)


def test_owners_live_where_their_keys_say_and_may_move(guarded: World) -> None:
    world = guarded
    world.keys("ann", "bob", scopes=[Scope.SUBMIT, Scope.READ])
    world.keys("ops")
    first = {who: world.submit(who) for who in ("ann", "bob")}
    assert [cell_of(job) for job in first.values()] == ["0", "1"]
    assert [job["id"] for job in world.pages("/v1/jobs?limit=1", "ann")] == [first["ann"]]
    assert len(world.pages("/v1/jobs?limit=1&owner=*", "ops")) == 2
    world.call("GET", "/v1/jobs?owner=*", "ann", 403)
    world.call("GET", "/v1/jobs", "nobody", 401)
    world.call("POST", "/v1/jobs/bulk", "nobody", 401, json={})
    world.call("GET", f"/v1/jobs/{new_job_id(cell='7')}", "nobody", 401)
    world.call("PUT", "/v1/aliases/x", "ann", 403, json={"version": VERSION})
    keyed: dict[str, Any] = {"headers": {"Idempotency-Key": "k"}, "json": ONE}
    before = world.call("POST", "/v1/jobs", "ann", 202, **keyed)["id"]
    named = world.call("PUT", "/v1/jobs/mine", "ann", 202, json=ONE)["id"]
    links = {cell: Link(bench.settings.redis_url) for cell, bench in world.benches.items()}
    assert CellKeys(links).move("ann", "1") == ("1", "0")
    eventually(lambda: cell_of(world.submit("ann")) == "1")
    # What was made before is found where it is, and made no second time.
    assert world.call("POST", "/v1/jobs", "ann", 202, **keyed)["id"] == before
    assert world.call("PUT", "/v1/jobs/mine", "ann", 202, json=ONE)["id"] == named
    assert world.call("GET", "/v1/jobs/mine", "ann")["id"] == named
    assert world.call("GET", f"/v1/jobs/{first['ann']}", "ann")["id"] == first["ann"]
    assert {cell_of(job["id"]) for job in world.pages("/v1/jobs?limit=2", "ann")} == {"0", "1"}


def test_the_console_shows_one_cell_at_a_time_to_one_session(guarded: World) -> None:
    world = guarded
    world.keys("ops", cells="1")
    job = world.submit("ops")
    own = {"Sec-Fetch-Site": "same-origin"}
    world.api.post("/console/sign-in", data={"key": world.secrets["ops"]}, headers=own, follow_redirects=False)
    page = world.call("GET", "/console/jobs")
    assert job in page
    assert 'href="./jobs?cell=1" aria-current="true"' in page
    assert job not in world.call("GET", "/console/jobs?cell=0")
    assert job not in world.call("GET", "/console/jobs")
    assert job in world.call("GET", f"/console/jobs/{job}")
    assert job in world.call("GET", "/console/jobs?cell=1")


def test_data_of_one_cell_become_the_first_of_two(
    settings: Settings, raw: redis.Redis, second: Server, bell: str
) -> None:
    """Keys, jobs and names of a service before it had cells are those of cell 0."""
    store = ApiKeyStore(Link(settings.redis_url))
    _, secret = store.create("old", [Scope.SUBMIT, Scope.READ], owner="old")
    alone = settings.model_copy(update={"auth": "required"})
    Bench(alone, raw, bell).core("0/0")
    with TestClient(create_app(alone)) as api:
        headers = {"x-api-key": secret}
        job = api.put("/v1/jobs/mine", json=ONE, headers=headers).json()["id"]
    require_schema(Link(settings.redis_url), "0")
    with pytest.raises(SetupError, match="is cell 0"):
        require_schema(Link(settings.redis_url), "1")
    with running(settings, raw, second, bell, auth="required") as world:
        world.secrets["old"] = secret
        assert CellKeys({cell: Link(bench.settings.redis_url) for cell, bench in world.benches.items()}).sync() == 1
        assert world.call("GET", "/v1/jobs/mine", "old")["id"] == job
        assert world.call("PUT", "/v1/jobs/mine", "old", 202, json=ONE)["id"] == job
        assert cell_of(world.submit("old")) == "0"


def test_every_route_is_given_to_cells_on_purpose() -> None:
    """A new route that no cell's way names would be served by any cell."""
    modules = [importlib.import_module(f"{routes.__name__}.{each.name}") for each in iter_modules(routes.__path__)]
    found = [route for module in modules if hasattr(module, "router") for route in module.router.routes]
    called = [(method, route.path) for route in found for method in route.methods]
    ways = {(method, path): way_of(method, path) for method, path in called if path.startswith("/v1/")}
    assert len(ways) > 40
    assert [each for each, way in ways.items() if way.kind is Kind.ANY] == []
    job, file = new_job_id(cell="3"), new_id("file", cell="4")
    assert way_of("GET", f"/v1/jobs/{job}/results") == Way(Kind.ONE, "3")
    assert way_of("GET", "/v1/jobs/mine/results") == Way(Kind.NAMED, name="mine")
    assert way_of("DELETE", f"/v1/files/{file}") == Way(Kind.ONE, "4")
    assert way_of("POST", f"/v1/deliveries/evt_{job[4:]}_completed/redeliver") == Way(Kind.ONE, "3")
    assert way_of("GET", f"/console/jobs/{job}") == Way(Kind.CONSOLE, "3")
    assert way_of("GET", "/docs") == Way(Kind.ANY)


def test_a_cell_that_does_not_close_holds_up_no_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stuck:
        def __init__(self, wait_s: float) -> None:
            self.wait_s, self.is_closed = wait_s, False

        async def close(self) -> None:
            await asyncio.sleep(self.wait_s)
            self.is_closed = True

    told: list[Any] = []
    monkeypatch.setattr(cell_module, "CLOSE_S", 0.2)
    monkeypatch.setattr(cell_module.log, "error", lambda event, **more: told.append((event, more["waits_for"])))
    stuck, other = Stuck(60.0), Stuck(0.0)
    asyncio.run(cell_module.close_all([stuck, other]))  # type: ignore[list-item]
    assert (stuck.is_closed, other.is_closed) == (False, True)
    [(event, waits_for)] = told
    assert event == "cell_close_late"
    assert waits_for[0].endswith("Stuck.close")
