"""Redis as a border: what is forged on a queue or in a lane fails, and no more; the worker that met it goes on."""

import base64
import json
import pickle
from functools import partial
from typing import Any

import pytest

from tests.tools.fleet import Fleet
from tests.tools.waiting import eventually

pytestmark = pytest.mark.chaos

QUEUES = ("core.testhost.0", "keeper")


class Exploit:
    """Would make a file, were it ever unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return open, (self.path, "w")


def is_empty(raw: Any, queue: str) -> bool:
    return raw.llen(queue) == 0


def message(
    body: bytes, content_type: str, task: Any = "corelane.drain", encoding: str = "utf-8", **headers: Any
) -> str:
    """Return a message as kombu puts it on a queue."""
    return json.dumps(
        {
            "body": base64.b64encode(body).decode(),
            "content-encoding": encoding,
            "content-type": content_type,
            "headers": {"lang": "py", "task": task, "id": "forged", "root_id": "forged", **headers},
            "properties": {
                "correlation_id": "forged",
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": "forged"},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": "forged",
            },
        }
    )


def test_forged_messages_are_thrown_away_and_run_nothing(
    one_core: Fleet, one_core_redis: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trap = tmp_path_factory.mktemp("trap") / "ran"
    pickled = pickle.dumps(((Exploit(str(trap)),), {}, {}))
    good = json.dumps([[], {}, {}]).encode()
    forged = [
        message(pickled, "application/x-python-serialize", encoding="binary"),
        message(pickled, "application/json"),
        message(good, "application/json", task="os.system"),
        message(good, "application/json", task=["corelane.drain"]),
        message(json.dumps([["one", "two"], {"three": 3}, {}]).encode(), "application/json"),
        message(b"[" * 100_000, "application/json"),
        message(b"x" * 5_000_000, "application/json"),
        message(good, "application/json", eta="yesterday", expires="never", timelimit="long"),
        "no JSON at all",
        "{}",
        "[]",
        json.dumps({"body": 7, "headers": 7, "properties": 7}),
    ]
    for queue in QUEUES:
        for text in forged:
            one_core_redis.lpush(queue, text)
    before = one_core.ends()
    with one_core.client() as client:
        for _ in range(3):
            assert client.ask("What is the number?", "The number is 1.").status == "succeeded"
    for queue in QUEUES:
        eventually(partial(is_empty, one_core_redis, queue))
    one_core.wait_whole(60)
    assert one_core.ends() == before
    assert not trap.exists()
