"""One API over two cells, each with a Redis of its own: every route, a cell that is away, and owners that moved."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
import redis
from fastapi.testclient import TestClient
from pydantic import SecretStr

from api.app import create_app
from corelane.cli.redis_server import find_server, server_argv
from corelane.domain.api_keys import unchecked_owner
from corelane.domain.cells import rendezvous
from corelane.domain.ids import cell_of
from corelane.settings import Settings
from tests.api.office import ONE
from tests.conftest import free_port
from tests.corelane.store_bench import Bench, answered, claimed

LINE = '{"custom_id": "a", "method": "POST", "url": "/v1/answers", "body": {"question": "who", "context": "ada"}}\n'


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
    server.kill()


@dataclass
class World:
    """An API over two cells, and what stands behind each."""

    api: TestClient
    benches: dict[str, Bench]
    secrets: dict[str, str]

    def call(self, method: str, path: str, who: str = "", status: int = 200, **sent: Any) -> Any:
        headers = dict(sent.pop("headers", {}))
        if who:
            headers["Authorization"] = f"Bearer {self.secrets.get(who, who)}"
        self.last: httpx2.Response = self.api.request(method, path, headers=headers, **sent)
        assert self.last.status_code == status, self.last.text
        kind = self.last.headers.get("content-type", "")
        return self.last.json() if "json" in kind else self.last.text

    def submit(self, who: str = "", **more: Any) -> str:
        return self.call("POST", "/v1/jobs", who, 202, json=ONE | more)["id"]

    def answer(self, outcome: str = "succeeded") -> None:
        """Have both cells' cores answer what waits."""
        for bench in self.benches.values():
            core = bench.core(f"{bench.settings.cell}/0")
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
        yield World(client, benches, {})


def text_of(cell: str) -> str:
    """Return a text sent as a key whose owner is at home in a cell."""
    return next(text for n in range(100) if rendezvous(unchecked_owner(text := f"k{n}"), ("0", "1")) == cell)


@pytest.fixture
def world(settings: Settings, raw: redis.Redis, second: Server, bell: str) -> Iterator[World]:
    with running(settings, raw, second, bell) as world:
        yield world


def test_ids_lead_home_and_lists_are_merged(world: World) -> None:
    left, right = text_of("0"), text_of("1")
    jobs = [world.submit(who) for who in (left, right, left, right)]
    assert [cell_of(job) for job in jobs] == ["0", "1", "0", "1"]
    for who, job in zip((left, right), jobs[:2], strict=True):
        assert world.call("GET", f"/v1/jobs/{job}", who)["status"] == "queued"
    # Everyone who sends no key is one owner, with jobs in both cells.
    spread = [world.submit() for _ in range(12)]
    assert {cell_of(job) for job in spread} == {"0", "1"}
    newest = sorted(spread, key=lambda job: job[5:], reverse=True)
    found: list[str] = []
    page = world.call("GET", "/v1/jobs?limit=5")
    while True:
        found += [job["id"] for job in page["data"]]
        if not page["has_more"]:
            break
        assert f"after={page['next']}" in world.last.headers["link"]
        page = world.call("GET", f"/v1/jobs?limit=5&after={page['next']}")
    assert found == newest
    world.answer("failed")
    items: list[str] = []
    page = world.call("GET", "/v1/failed-items?limit=5")
    items += [item["job"] for item in page["data"]]
    while page["has_more"]:
        page = world.call("GET", f"/v1/failed-items?limit=5&after={page['next']}")
        items += [item["job"] for item in page["data"]]
    assert items == newest
