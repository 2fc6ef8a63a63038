"""Large bodies: read in turn and in a thread, bounded in memory, and refused for their shape before they are read."""

import asyncio
import gc
import threading
from itertools import accumulate
from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient

from api.requests import JsonRequest
from corelane.errors import Overloaded, TooLarge
from corelane.submitting import large_bodies
from corelane.submitting.large_bodies import LARGE_BYTES, MOST_MARKS, OWNER_BYTES, LargeBodies, load
from tests.api.conftest import Service
from tests.tools.waiting import eventually

OK = {"question": "Who?", "context": "Ada."}
JSON = {"Content-Type": "application/json"}
LARGE = {"id": "i" * 200, "question": "Who is it?" * 100, "context": "Ada."}


def post(api: TestClient, route: str, value: Any) -> Any:
    return api.post(f"/v1/{route}", content=orjson.dumps(value), headers=JSON)


@pytest.mark.parametrize("entries", [10_001, 200_000], ids=["small", "large"])
def test_too_many_items_are_counted_and_none_is_looked_at(api: TestClient, entries: int) -> None:
    refused = post(api, "jobs", {"items": [1] * entries})
    assert (refused.status_code, refused.json()["code"]) == (413, "too_large")
    assert f"the job has {entries:,} items, at most 10,000 are taken" in refused.json()["detail"]


@pytest.mark.parametrize("entries", [10_001, 200_000], ids=["small", "large"])
@pytest.mark.parametrize(
    ("route", "name"),
    [
        ("hf/question-answering", "inputs"),
        ("hf/text-classification", "inputs"),
        ("embeddings", "input"),
        ("hf/sentence-similarity", "inputs.sentences"),
        ("rerank", "documents"),
        ("jobs", "contexts"),
    ],
)
def test_entries_of_a_list_are_counted_and_none_is_looked_at(
    api: TestClient, route: str, name: str, entries: int
) -> None:
    value: Any = {str(at): 1 for at in range(entries)} if name == "contexts" else [None] * entries
    for part in reversed(name.split(".")):
        value = {part: value}
    refused = post(api, route, value)
    faults = [each for each in refused.json()["errors"] if each["at"].startswith(name)]
    assert (refused.status_code, [each["at"] for each in faults]) == (422, [name])
    assert f"it has {entries:,} entries, at most 10,000 entries may be there" in faults[0]["detail"]


def test_fault_in_a_large_body_is_told_as_in_a_small_one(api: TestClient) -> None:
    items: list[dict[str, Any]] = [LARGE] * 400
    items[123] = {"question": "Who?", "context": 3}
    assert len(orjson.dumps(items)) > LARGE_BYTES
    refused = post(api, "jobs", {"items": items})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
    assert refused.json()["detail"].startswith("items.123.context: a text is wanted; this model takes items for")
    assert refused.json()["errors"] == [{"at": "items.123.context", "detail": "a text is wanted"}]
    broken = api.post("/v1/jobs", content=b'{"items": [' + b" " * LARGE_BYTES, headers=JSON)
    assert broken.json()["detail"].startswith("body: the body is not JSON in UTF-8: ")


def test_large_job_is_taken_in_and_is_the_same_job_when_it_is_sent_again(service: Service) -> None:
    body = orjson.dumps({"items": [LARGE | {"id": f"{number:0200}"} for number in range(400)]})
    for sends, status in ((1, 202), (2, 202)):
        made = service.http.post("/v1/jobs?wait=0.1", content=body, headers=JSON | {"Idempotency-Key": "one"})
        assert (made.status_code, made.json()["counts"]["total"]) == (status, 400)
        assert made.headers.get("Idempotent-Replayed") == (None if sends == 1 else "true")
    assert len(service.http.get("/v1/jobs").json()["data"]) == 1


@pytest.mark.parametrize("body", [b"[],", b"{},", b'{"":1},', b'"":', b'"a",'])
def test_body_of_brackets_alone_is_refused_unparsed(body: bytes) -> None:
    with pytest.raises(TooLarge, match="brackets and colons"):
        load(b'{"items": [' + body * (MOST_MARKS + 1))


def test_line_of_brackets_alone_is_refused_by_its_number(service: Service) -> None:
    line = b'{"question": "Who?", "context": "Ada."}\n[' + b"[]," * MOST_MARKS + b"1]\n"
    refused = service.http.post("/v1/jobs", content=line, headers={"Content-Type": "application/x-ndjson"})
    assert (refused.status_code, refused.json()["code"]) == (413, "too_large")
    assert refused.json()["detail"].startswith("line 2: one piece of JSON may have 250,000 brackets")


@pytest.mark.parametrize("value", [{"items": [1] * 200_000}, {"items": [1] * 300}, {"items": 1, "id": []}])
def test_refused_body_is_gone_from_memory_before_the_next_garbage_collection(api: TestClient, value: Any) -> None:
    post(api, "jobs", {})
    gc.collect()
    gc.disable()
    try:
        assert post(api, "jobs", value).status_code in (413, 422)
        # The answer may come before the request's task has ended.
        eventually(lambda: not any(isinstance(each, JsonRequest) for each in gc.get_objects()), 10)
    finally:
        gc.enable()


def test_large_bodies_are_parsed_in_a_thread_one_at_a_time_and_owners_take_turns() -> None:
    at_once = most = 0
    order: list[str] = []
    threads = set()

    def parse(sent: bytes) -> bytes:
        nonlocal at_once, most
        at_once, most = at_once + 1, max(most, at_once + 1)
        order.append(sent[:1].decode())
        threads.add(threading.get_ident())
        threading.Event().wait(0.001)
        at_once -= 1
        return sent

    async def go() -> None:
        bodies = LargeBodies()
        assert await bodies.read("a", b"a", lambda sent: (sent, threading.get_ident())) == (b"a", threading.get_ident())
        asked = [("a", b"a")] * 4 + [("b", b"b")]
        await asyncio.gather(*[bodies.read(owner, mark * (LARGE_BYTES + 1), parse) for owner, mark in asked])

    asyncio.run(go())
    assert most == 1
    assert order == ["a", "b", "a", "a", "a"]
    assert threading.get_ident() not in threads


def test_parsed_body_is_validated_before_more_of_its_owner_are_parsed() -> None:
    steps: list[int] = []

    async def take(bodies: LargeBodies) -> None:
        await bodies.read("a", b"a" * (LARGE_BYTES + 1), lambda _: steps.append(1))
        await bodies.read("a", b"a" * (LARGE_BYTES + 1), lambda _: steps.append(-1), is_parsed=True)

    async def go() -> None:
        bodies = LargeBodies()
        await asyncio.gather(*[take(bodies) for _ in range(10)])

    asyncio.run(go())
    assert max(accumulate(steps)) <= 3


def test_owner_waits_for_room_that_another_owner_still_has(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        bodies = LargeBodies()
        held = await bodies.enter("a", OWNER_BYTES)
        monkeypatch.setattr(large_bodies, "ROOM_S", 0.01)
        with pytest.raises(Overloaded, match="send fewer at a time"):
            await bodies.enter("a", LARGE_BYTES + 1)
        with await bodies.enter("b", OWNER_BYTES), pytest.raises(Overloaded):
            await bodies.enter("c", LARGE_BYTES + 1)
        monkeypatch.setattr(large_bodies, "ROOM_S", 60)
        waiting = asyncio.create_task(bodies.enter("a", OWNER_BYTES))
        await asyncio.sleep(0)
        held.leave()
        held.leave()
        with await waiting:
            monkeypatch.setattr(large_bodies, "ROOM_S", 0.01)
            with pytest.raises(Overloaded):
                await bodies.enter("a", LARGE_BYTES + 1)
        with await bodies.enter("d", 10 * OWNER_BYTES):
            pass

    asyncio.run(go())
