"""The newest release and this source on one Redis, part by part in real processes, under load: up, and back again.

Its null engine takes its time, so jobs, a batch, webhooks and a job of later are under way whenever a part is replaced.
Between two formats of the store there is no such way: each refuses the other's data (tests/corelane/test_library.py).
"""

import json
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from corelane.domain.jobs import DEFAULT_TASK
from tests.chaos import audit, load
from tests.chaos.hooks import hooks
from tests.chaos.watch import Watch
from tests.conftest import ROOT
from tests.tools.fleet import SHAKEN, Fleet, running
from tests.tools.released import Source
from tests.tools.servers import DurableRedis
from tests.tools.waiting import eventually

#: What is replaced one after the other.
PARTS = ("api", "keeper,deliveries", "worker")

CREATE = ("-m", "corelane", "keys", "create", "--name", "up", "--json")


def launch(source: Source, roles: str, folder: Path, server: DurableRedis) -> Fleet:
    more = {
        "CORELANE_AUTH": "required",
        "CORELANE_CORE_HOST": folder.name,
        "CORELANE_FILES_DIR": str(folder.parent / "files"),
        "CORELANE_MODELS": ",".join(load.OTHERS),
        "CORELANE_WEBHOOK_RETRIES_S": ",".join(["1"] * 120),
    }
    options = ("--redis", server.url, "--roles", roles, *(("--cores", "1") if roles == "worker" else ()))
    return Fleet(folder / roles, *options, settings=SHAKEN | more, on=source)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", ["up", "back"])
def test_work_under_way_comes_out_once_while_each_part_is_replaced(
    way: str, released: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = (released, Source(ROOT)) if way == "up" else (Source(ROOT), released)
    server = DurableRedis(tmp_path / "redis")
    server.start()
    key = json.loads(before.output(*CREATE, CORELANE_REDIS_URL=server.url))["key"]
    for module in (load, audit):
        monkeypatch.setattr(module, "KEYS", (key,) * len(load.KEYS))
    with hooks(1) as told, Watch(server) as watch, ExitStack() as stack:
        told.is_down = True
        tasks, headers = [DEFAULT_TASK, *load.OTHERS], {"X-API-Key": key}
        given: dict[str, Any] = {"threads": 2, "most_items": 60, "hook": told.url, "tasks": tasks}
        olds = [launch(before, roles, tmp_path / "before", server) for roles in PARTS]
        old_api, old_rounds, old_worker = [stack.enter_context(running(each)) for each in olds]

        def replace(roles: str, old: Fleet) -> Fleet:
            new = stack.enter_context(running(launch(after, roles, tmp_path / "after", server)))
            assert old.stop() == 0, old.last_words()
            return new

        def answer(api: Fleet, *jobs: load.Submitted) -> None:
            for job in jobs:
                assert all_.submit(api.api, job), all_.outcomes
            with api.client(key) as client:
                assert client.wait(jobs[0].id, timeout_s=60).status == "succeeded"

        begins = datetime.now(UTC) + timedelta(seconds=20)
        later = load.make("later", 3, not_before=begins.isoformat(), webhook={"url": told.url})
        large = load.make("large", 2000, form="lines", webhook={"url": told.url})
        with load.Load(old_api.url, 1, **given) as all_:
            answer(old_api, load.make("first", 3, webhook={"url": told.url}), later, large)
            body = {"question": "Which?", "context": "Number 7."}
            requests: list[dict[str, Any]] = [{"custom_id": f"n{n}", "body": body} for n in range(200)]
            wanted = {"endpoint": "/v1/answers", "requests": requests}
            batch = old_api.api.post("/v1/batches", json=wanted, headers=headers).raise_for_status().json()["id"]
            eventually(lambda: told.statuses)
        api = replace("api", old_api)
        with load.Load(api.url, 2, **given) as second:
            answer(api, load.make("by the worker of before", 3))
            replace("keeper,deliveries", old_rounds)
            told.is_down = False
            replace("worker", old_worker)
            answer(api, load.make("by the worker of after", 3))
        eventually(lambda: api.api.get(f"/v1/batches/{batch}", headers=headers).json()["status"] == "completed", 120)
        lines = api.api.get(f"/v1/batches/{batch}/output", headers=headers).text.splitlines()
        assert sorted(json.loads(line)["custom_id"] for line in lines) == sorted(each["custom_id"] for each in requests)
        all_.accepted += second.accepted
        all_.unforeseen += second.unforeseen
        # The results of the batch's job are in its output now, and no longer in Redis.
        for job in watch.sight.writes.keys() - {each.id for each in all_.accepted}:
            del watch.sight.writes[job]
        api.redis = server
        assert audit.audit(api, all_, watch.sight, hooks=told).problems == []
        with api.client(key) as client:
            assert (client.get(later.id).started_at or "") >= begins.isoformat()[:19]
    server.stop()
