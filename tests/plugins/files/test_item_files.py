"""Files that items name: fetched by the core under the rules of `input_url`, each item failing alone."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel
from pytest_httpserver import HTTPServer
from werkzeug import Response

from api.app import create_app
from corelane import FileUrl, Handler
from corelane.engine.runner import ServedModel
from corelane.engine.task import Query, RunnerLimits
from corelane.errors import InputFailed, TooLarge
from corelane.plugins.files.references import item_files
from corelane.plugins.files.references.item_files import fetch
from corelane.settings import Settings
from corelane.tasks.handler.engine.batches import HandlerModel
from corelane.tasks.handler.engine.items import HandlerEngine
from corelane.tasks.handler.engine.runner import HandlerRunner
from corelane.tasks.handler.engine.source import facts_of
from corelane.tasks.handler.engine.thread import HandlerThread
from corelane.tasks.handler.wire import HandlerOptions
from tests.corelane.store_bench import announce
from tests.tools.keys import add_keys, as_owner
from tests.tools.receivers import dripping, listener
from tests.tools.s3 import put

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)

ALICE, BOB = as_owner("alice"), as_owner("bob")


class Page(BaseModel):
    scan: FileUrl


class Pictures(Handler):
    """Gives the size and type of each picture; of a batch with a bad one it makes nothing."""

    class Input(BaseModel):
        image: FileUrl
        pages: list[Page] = []
        said: str = ""

    class Output(BaseModel):
        size: int
        type: str

    max_item_bytes = 2000

    def predict(self, items: list[Input]) -> list[dict[str, Any]]:
        if any(item.said == "raise" for item in items):
            raise ValueError("no")
        files = [[item.image, *(page.scan for page in item.pages)] for item in items]
        return [{"size": sum(len(file.bytes) for file in each), "type": each[0].content_type} for each in files]


@dataclass
class Asked:
    """A local server, and how often each of its paths was asked."""

    server: HTTPServer
    settings: Settings

    def put(self, path: str, content: bytes = PNG, status: int = 200, **headers: str) -> str:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.server.expect_request(path).respond_with_data(content, status, named, content_type=named.get("type"))
        return self.server.url_for(path)

    def count(self, path: str) -> int:
        return sum(request.path == path for request, _ in self.server.log)


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_files, "PAUSES_S", (0.01, 0.0))


@pytest.fixture
def app_settings(settings: Settings, httpserver: HTTPServer) -> Settings:
    changes = {
        "input_urls": (httpserver.url_for("/"), "http://*/open/", "https://example.com/", "https://10.0.0.1/"),
        "reference_allowed_networks": (ip_network("127.0.0.0/8"),),
        "max_item_bytes": 4000,
        "console": False,
    }
    return add_keys(settings.model_copy(update=changes), "alice", "bob")


@pytest.fixture
def web(app_settings: Settings, httpserver: HTTPServer) -> Asked:
    return Asked(httpserver, app_settings)


@pytest.fixture
def refuse(app_settings: Settings) -> Callable[[str], str]:
    """Return what fetches a URL, and gives the sentence by which it fails."""

    def fetched(url: str) -> str:
        with pytest.raises((InputFailed, TooLarge)) as refused:
            fetch(app_settings, url, "alice", 2000)
        assert str(refused.value).count(url.partition("?")[0]) == 1
        return str(refused.value)

    return fetched


@pytest.fixture
def pictures(app_settings: Settings) -> Iterator[HandlerRunner]:
    limits, thread = RunnerLimits(fetch=partial(fetch, app_settings)), HandlerThread("pictures@1")
    model = HandlerModel("pictures@1", Pictures(), thread, limits)
    served = ServedModel("pictures", "pictures@1", {}, (HandlerEngine(model).bucket,), "handler")
    with closing(HandlerRunner(served, model, limits)) as runner:
        yield runner


@pytest.fixture
def api(app_settings: Settings) -> Iterator[TestClient]:
    """Yield a client of an app that checks keys, and serves the pictures' version."""
    facts = facts_of("shop:Pictures", "", Pictures)
    announce(app_settings, "a/0", "pictures@1", ["pictures"], {"task": "handler", "name": "pictures", "facts": facts})
    with TestClient(create_app(app_settings), raise_server_exceptions=False) as client:
        yield client


def ask(runner: HandlerRunner, *items: dict[str, Any], owner: str = "alice") -> list[Any]:
    queries = [Query(None, orjson.dumps(item).decode(), HandlerOptions(), owner) for item in items]
    return [found["output"] or found["error"] for found in runner.results_of(queries)]


def upload(api: TestClient, content: bytes, name: str, purpose: str = "user_data") -> Any:
    return api.post("/v1/files", files={"file": (name, content)}, data={"purpose": purpose}, headers=ALICE)


def submit(api: TestClient, *items: dict[str, Any], headers: dict[str, str] = ALICE, **more: Any) -> Any:
    return api.post("/v1/jobs", json={"model": "pictures", "items": list(items), **more}, headers=headers)


def test_a_batch_fetches_each_file_once_and_items_without_theirs_fail_alone(
    web: Asked, pictures: HandlerRunner
) -> None:
    good, gone, page = web.put("/a.png"), web.put("/gone.png", b"", 404), web.put("/b", b"{}", type="application/json")
    items: list[dict[str, Any]] = [{"image": good, "said": str(n)} for n in range(6)]
    items[2:2] = [{"image": gone}, {"image": good, "said": "raise"}, {"image": page, "pages": [{"scan": good}]}]
    found = ask(pictures, *items, {"image": 3})
    whole = {"size": len(PNG), "type": "image/png"}
    assert found[:2] + found[5:9] == [whole] * 6
    assert (found[2]["code"], "/gone.png: the server answered 404" in found[2]["detail"]) == ("input_failed", True)
    assert (found[3]["code"], found[4]) == ("run_failed", {"size": len(PNG) + 2, "type": "application/json"})
    assert found[9] == {"code": "invalid_input", "detail": 'image: a URL, or {"file_id": …}, is wanted'}
    assert web.count("/a.png") == web.count("/gone.png") == 1, "halves of a batch do not fetch again"


@pytest.mark.parametrize(
    ("content", "status", "headers", "said"),
    [
        (b"x" * 2001, 200, {}, "it has more than 2,000 bytes (the model's own bound): name a smaller one"),
        (b"gone", 410, {}, "the server answered 410"),
        (b"<html>", 200, {"type": "text/html"}, "it is said to be image/png, and its bytes are not"),
        (b"<html>", 200, {"type": "image/png"}, "it is said to be image/png, and its bytes are not: name the file"),
        (b"<html>", 200, {"type": "application/octet-stream"}, "it is said to be image/png"),
        (b"\xff\xd8\xff", 200, {"type": "text/plain"}, "it is said to be image/png"),
        (PNG, 200, {"Content_Encoding": "gzip"}, "the server packs it (gzip)"),
        (b"", 302, {"Location": "/elsewhere"}, "redirects to"),
        (b"", 302, {"Location": "https://10.0.0.1/a.png"}, "CORELANE_REFERENCE_ALLOWED_NETWORKS"),
        (b"", 302, {"Location": "http://169.254.169.254/open/a.png"}, "CORELANE_REFERENCE_ALLOWED_NETWORKS"),
        (b"", 302, {"Location": "/a.png"}, "redirects too often"),
        (b"", 503, {}, "the server answered 503; see that it can be read, and retry the job"),
    ],
)
def test_file_that_cannot_be_used_says_why(
    web: Asked, refuse: Callable[[str], str], content: bytes, status: int, headers: dict[str, str], said: str
) -> None:
    if headers.get("Location") == "/elsewhere":
        headers = {"Location": "https://other.example/a.png"}
    url = web.put("/a.png", content, status, **headers)
    assert said in refuse(f"{url}?key=secret")
    assert "secret" not in refuse(f"{url}?key=secret")


@pytest.mark.parametrize(
    ("name", "said", "content", "found"),
    [
        ("a.png", "image/webp", b"RIFF", "image/webp"),
        ("a.png", "text/plain", PNG, "image/png"),
        ("a.json", "text/plain", b"{}", "text/plain"),
        ("a.json", "", b"{}", "application/json"),
        ("a", "text/html", b"<html>", "text/html"),
        ("a", "application/octet-stream", b"x", ""),
    ],
)
def test_type_is_what_bytes_and_server_or_name_agree_on(name: str, said: str, content: bytes, found: str) -> None:
    assert item_files.type_of(name, said, content) == found


def test_page_instead_of_a_file_is_refused() -> None:
    with pytest.raises(InputFailed, match="said to be text/csv"):
        item_files.type_of("a.csv", "text/html", b"<html>")


def test_endless_file_is_cut_off_at_the_bound(web: Asked, refuse: Callable[[str], str]) -> None:
    web.server.expect_request("/a").respond_with_response(Response(iter(lambda: b"x" * 100, b"")))
    assert "CORELANE_MAX_ITEM_BYTES" not in (said := refuse(web.server.url_for("/a"))), said
    assert "more than 2,000 bytes" in said


def test_server_that_drips_is_left_in_time(
    app_settings: Settings, refuse: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_files, "FETCH_S", 0.5)
    for head in (b"HTTP/1.1 200 OK\r\nX: y", b"HTTP/1.1 200 OK\r\n\r\n"):
        with listener(dripping(head, 0.01)) as slow:
            began = time.monotonic()
            assert "it was not read within 0.5 s" in refuse(f"http://127.0.0.1:{slow.port}/open/a")
            assert time.monotonic() - began < 3


def test_object_in_a_bucket_is_a_file_too(app_settings: Settings, s3: str, bucket: Path) -> None:
    put(bucket / "a.png", PNG)
    settings = app_settings.model_copy(update={"input_urls": (f"{s3}/",)})
    assert fetch(settings, f"{s3}/a.png", "alice", None) == (PNG, "image/png")
    for name, most, said in (("gone", None, "there is no object"), ("a.png", 50, "more than 50 bytes")):
        with pytest.raises((InputFailed, TooLarge), match=said):
            fetch(settings, f"{s3}/{name}", "alice", most)


def test_server_that_fails_once_is_asked_again(web: Asked) -> None:
    replies = iter((Response("", 503), Response(PNG, 200, content_type="image/png; charset=x")))
    web.server.expect_request("/a.png").respond_with_handler(lambda _: next(replies))
    assert fetch(web.settings, web.server.url_for("/a.png"), "alice", None) == (PNG, "image/png")


def test_without_the_plugin_files_no_file_is_fetched(pictures: HandlerRunner) -> None:
    pictures._run.__self__._limits = RunnerLimits()  # type: ignore[attr-defined]
    assert "the plugin `files` does" in ask(pictures, {"image": "https://example.com/a"})[0]["detail"]


def test_uploaded_file_is_an_item_s_for_its_owner_alone(api: TestClient, pictures: HandlerRunner) -> None:
    lines = PNG + b"a\n" * 800
    file = upload(api, lines, "a.png").raise_for_status().json()
    assert file["purpose"] == "user_data"
    item = {"image": {"file_id": file["id"]}}
    assert submit(api, item).status_code == 202
    refused = submit(api, {"image": "https://example.com/a"}, item, headers=BOB)
    assert (refused.status_code, "item 1: you have no file file_" in refused.json()["detail"]) == (422, True)
    assert ask(pictures, item) == [{"size": len(lines), "type": "image/png"}]
    assert "you have no file" in ask(pictures, item, owner="bob")[0]["detail"]
    wrong = upload(api, b"GIF89a", "a.png").json()["id"]
    assert "said to be image/png" in ask(pictures, {"image": {"file_id": wrong}})[0]["detail"]
    batch = {"input_file_id": file["id"], "endpoint": "/v1/answers", "completion_window": "24h"}
    assert "purpose `user_data`" in api.post("/v1/batches", json=batch, headers=ALICE).text
    api.delete(f"/v1/files/{file['id']}", headers=ALICE).raise_for_status()
    assert "upload it by POST /v1/files" in ask(pictures, item)[0]["detail"]


def test_upload_of_another_purpose_is_refused(api: TestClient) -> None:
    assert "or `user_data` for a file that an item names" in upload(api, PNG, "a.png", "vision").json()["detail"]


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (
            {"image": "https://evil.example/a"},
            "item 1: the URL 'https://evil.example/a' is refused: it begins with no URL that",
        ),
        ({"image": "file:///etc/passwd"}, "is refused"),
        ({"image": "https://10.0.0.1/a"}, "item 1: the address of the URL is refused"),
        ({"image": "https://example.com/a", "pages": [{"scan": "http://x/?s=secret"}]}, "'http://x/' is refused"),
        ({"image": "https://example.com/a", "said": "é" * 1000}, "item 1: the item has 2,0"),
        ({"image": 3}, "image: 3 is not valid"),
    ],
)
def test_file_or_item_that_is_refused_is_refused_at_submission(
    api: TestClient, item: dict[str, Any], said: str
) -> None:
    good = {"image": "https://example.com/a"}
    refused = submit(api, good, item)
    assert (refused.status_code in (413, 422), said in refused.text) == (True, True), refused.text
    taken = submit(api, good, item, invalid_items="fail")
    assert taken.status_code == 202, "the item fails alone"
