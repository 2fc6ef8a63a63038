"""Batches whose lines are in the request: read as a stream, and from there on as batches of a file."""

import asyncio
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import orjson
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from corelane.plugins.files.routes import inline
from corelane.settings import Settings
from corelane.store.file_storage import open_storage
from corelane.store.jobs.idempotency import start_fingerprint
from tests.api.conftest import Service
from tests.plugins.files.test_files import ALICE, kept_on_disk
from tests.tools.waiting import eventually

ONE = {"custom_id": "a", "body": {"question": "Who?", "context": "Ada."}}
JSON, KEY = {"Content-Type": "application/json"}, {"Idempotency-Key": "monday's run"}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(alphabet='a"\\\n{}[],: é😀', max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["requests", 'x"', "y"]), inner),
    max_leaves=8,
)


def body(*requests: Any, **more: Any) -> dict[str, Any]:
    return {"endpoint": "/v1/answers", **more, "requests": requests}


def test_requests_become_the_lines_of_a_file_whatever_stands_around_them(api: TestClient) -> None:
    text = b'{\n "metadata": {"a":"\\"requests\\": [1"}, "requests" :\n[ {"custom_id": "a",\n"body":{} }\n, [], 1e2]\n'
    made = api.post("/v1/batches", content=text + b', "endpoint": "/v1/answers"}', headers=JSON)
    assert (made.json()["completion_window"], made.json()["metadata"]) == ("24h", {"a": '"requests": [1'}), made.text
    [file] = api.get("/v1/files").json()["data"]
    assert (file["id"], file["purpose"]) == (made.json()["input_file_id"], "batch")
    assert api.get(f"/v1/files/{file['id']}/content").content == b'{"custom_id": "a", "body":{} }\n[]\n1e2\n'


@given(st.lists(VALUES, min_size=1, max_size=5), st.sampled_from([None, 1]), st.integers(1, 40))
def test_body_in_any_pieces_gives_the_same_lines(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], indent: int | None, size: int
) -> None:
    settings = Settings(data_dir=tmp_path_factory.mktemp("inline"))
    storage = open_storage(settings.files_url, settings.files_root)
    sent = json.dumps(body(*values, metadata={"a": "b"}), indent=indent, ensure_ascii=indent is None).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(sent), size):
            yield sent[at : at + size]

    async def read() -> Any:
        async with inline.BatchReader(settings, storage, "file_x") as reader:
            found = await reader.read(pieces(), start_fingerprint("batches"))
            return found, b"".join(storage.read("file_x"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inline, "WRITE_BYTES", 1)
        found, content = asyncio.run(read())
    assert (found.endpoint, found.metadata, found.requests) == ("/v1/answers", {"a": "b"}, [])
    assert [orjson.loads(line) for line in content.split(b"\n")[:-1]] == values


TEXT = orjson.dumps(body(ONE)).decode()
WRONG: dict[str, tuple[str, int, str]] = {
    "no input": ('{"endpoint": "/v1/answers"}', 422, "give either an `input_file_id` or, once, `requests`"),
    "no requests": (TEXT.replace(orjson.dumps(ONE).decode(), ""), 422, "with at least one {custom_id, body}"),
    "both": (TEXT[:-1] + ', "input_file_id": "file_1"}', 422, "give either"),
    "twice": (TEXT[:-1] + ', "requests": [{}]}', 422, "once"),
    "broken": (TEXT[:-2] + ', {"custom_id": }]}', 422, "request 2 is not JSON in UTF-8"),
    "not closed": (TEXT[:-2] + ', {"a": [1]]}', 422, "request 2 is not JSON in UTF-8"),
    "comma at the end": (TEXT[:-2] + ",]}", 422, "request 2 is not JSON in UTF-8"),
    "no UTF-8": (TEXT[:-2] + ',"\udcff"]}', 422, "request 2 is not JSON in UTF-8"),
    "broken off": (TEXT[:-2] + ', "abc', 422, "the body is not JSON in UTF-8, or broke off"),
    "another endpoint": (TEXT.replace("answers", "songs"), 422, "`endpoint` must be '/v1/"),
    "large request": (TEXT[:-2] + ', "' + "x" * 2048 + '"]}', 413, "request 2 has more than 1,024 bytes"),
    "large unfinished": (TEXT[:-2] + ', "' + "x" * 2048, 413, "what follows request 1 has more than 1,024 bytes"),
    "too many": (TEXT[:-2] + ", {}" * 40 + "]}", 413, "at most 40 requests; send several"),
    "too large": (TEXT[:-2] + " " * 2_100_000 + "]}", 413, "raise CORELANE_MAX_FILE_BYTES"),
}


class TestRefused:
    @pytest.fixture
    def app_settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"max_file_bytes": 2_000_000, "max_body_bytes": 1024, "max_file_lines": 40})

    @pytest.mark.parametrize(("sent", "status", "said"), WRONG.values(), ids=WRONG)
    def test_what_is_wrong_is_said_and_nothing_is_left(
        self, api: TestClient, app_settings: Settings, sent: str, status: int, said: str
    ) -> None:
        refused = api.post("/v1/batches", content=sent.encode(errors="surrogateescape"), headers=JSON)
        assert (refused.status_code, said in refused.json()["detail"]) == (status, True), refused.text
        assert refused.json()["error"]["message"] == refused.json()["detail"]
        assert (kept_on_disk(app_settings), api.get("/v1/batches").json()["data"]) == (set(), [])


def test_caller_who_leaves_amid_the_body_leaves_nothing(service: Service) -> None:
    def parts() -> Any:
        yield TEXT[:-2].encode() + b"," + orjson.dumps("x" * 2_000_000)
        eventually(lambda: kept_on_disk(service.bench.settings) != set())
        raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError), httpx2.Client(base_url=service.url) as client:
        client.post("/v1/batches", content=parts(), headers=JSON)
    eventually(lambda: kept_on_disk(service.bench.settings) == set())


def test_of_equal_posts_under_one_key_one_makes_a_batch_and_a_file(api: TestClient, settings: Settings) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: api.post("/v1/batches", json=body(ONE), headers=ALICE | KEY), range(8)))
    assert {(each.status_code, each.json()["id"]) for each in made} == {(200, made[0].json()["id"])}
    assert sum("Idempotent-Replayed" not in each.headers for each in made) == 1
    assert kept_on_disk(settings) == {made[0].json()["input_file_id"]}
    other = api.post("/v1/batches", json=body(ONE, ONE), headers=ALICE | KEY)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
