"""Files over HTTP: streamed in and out, whole or not there, their owner's alone."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
import pytest
import redis
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from api.app import create_app
from corelane.errors import InvalidInput
from corelane.plugins.files.routes.multipart import FormReader
from corelane.settings import Settings
from corelane.store.file_storage import DiskFiles, Storage, open_storage
from tests.tools.keys import as_owner

LINES = b'{"custom_id": "a"}\n\n{"custom_id": "b"}'
ALICE, BOB = as_owner("alice"), as_owner("bob")


def upload(
    api: TestClient,
    content: bytes = LINES,
    name: str = "in.jsonl",
    headers: dict | None = None,
    fields: dict[str, str] | None = None,
) -> Any:
    data = {"purpose": "batch"} | (fields or {})
    return api.post("/v1/files", files={"file": (name, content)}, data=data, headers=headers)


def kept_on_disk(settings: Settings) -> set[str]:
    folder = settings.files_root / "kept"
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def form(content: bytes, boundary: bytes = b"b") -> bytes:
    part = b'--%b\r\nContent-Disposition: form-data; name="file"; filename="x/y.jsonl"\r\n\r\n%b\r\n'
    purpose = b'--%b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    return part % (boundary, content) + purpose % boundary + b"--%b--\r\n" % boundary


def test_file_comes_back_as_it_was_sent_and_goes_when_deleted(api: TestClient, settings: Settings) -> None:
    taken = upload(api, name="naïve\r\n.jsonl")
    assert taken.status_code == 200
    file = taken.json()
    assert (file["object"], file["purpose"], file["status"]) == ("file", "batch", "processed")
    assert (file["bytes"], file["expires_at"] - file["created_at"]) == (len(LINES), settings.files_ttl_s)
    content = api.get(f"/v1/files/{file['id']}/content")
    assert (content.content, content.headers["content-length"]) == (LINES, str(len(LINES)))
    assert "na%C3%AFve" in content.headers["content-disposition"]
    assert api.get(f"/v1/files/{file['id']}").json() == file
    assert api.delete(f"/v1/files/{file['id']}").json() == {"id": file["id"], "object": "file", "deleted": True}
    assert api.get(f"/v1/files/{file['id']}").status_code == 404
    assert api.delete(f"/v1/files/{file['id']}").status_code == 404
    assert kept_on_disk(settings) == set()


def test_another_owners_file_is_not_there(api_of_two: TestClient) -> None:
    api = api_of_two
    file = upload(api, headers=ALICE).json()["id"]
    assert api.get(f"/v1/files/{file}", headers=ALICE).status_code == 200
    for refused in (
        api.get(f"/v1/files/{file}", headers=BOB),
        api.get(f"/v1/files/{file}/content", headers=BOB),
        api.delete(f"/v1/files/{file}", headers=BOB),
        api.get("/v1/files/file_nonsense%2F..%2F", headers=ALICE),
    ):
        assert refused.status_code == 404
    assert api.get("/v1/files", headers=BOB).json()["data"] == []
    assert len(api.get("/v1/files", headers=ALICE).json()["data"]) == 1


def test_pages_of_files_follow_each_other_in_either_order(api: TestClient) -> None:
    made = [upload(api).json()["id"] for _ in range(5)]
    for order, expected in (("desc", made[::-1]), ("asc", made)):
        found: list[str] = []
        page: dict = {"has_more": True, "last_id": None}
        while page["has_more"]:
            after = {} if page["last_id"] is None else {"after": page["last_id"]}
            page = api.get("/v1/files", params={"limit": 2, "order": order, **after}).json()
            found += [file["id"] for file in page["data"]]
        assert sorted(found) == sorted(expected)
        assert [file[:13] for file in found] == [file[:13] for file in expected]
    assert api.get("/v1/files", params={"purpose": "batch_output"}).json()["data"] == []
    assert api.get("/v1/files", params={"after": "job_x"}).status_code == 422


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"purpose": "fine-tune"}, "`purpose` must be `batch`"),
        ({"color": "red"}, "unknown field 'color'"),
        ({"expires_after[anchor]": "created_at", "expires_after[seconds]": "10"}, "3600"),
        ({"expires_after[anchor]": "now", "expires_after[seconds]": "3600"}, "anchor"),
        ({"expires_after[seconds]": "3600"}, "anchor"),
        ({"note": "x" * 2000}, "more than 1,024 bytes"),
    ],
)
def test_form_that_is_not_right_is_refused_and_nothing_is_kept(
    api: TestClient, settings: Settings, fields: dict[str, str], said: str
) -> None:
    refused = upload(api, fields=fields)
    assert refused.status_code == 422
    assert said in refused.json()["detail"]
    assert refused.json()["error"]["message"] == refused.json()["detail"]
    assert kept_on_disk(settings) == set()


@pytest.mark.parametrize(
    ("content_type", "body", "said"),
    [
        ("application/json", b"{}", "send a form"),
        ("multipart/form-data", b"", "send a form"),
        ("multipart/form-data; boundary=b", b"", "broke off"),
        ("multipart/form-data; boundary=b", form(LINES)[:-9], "broke off"),
        ("multipart/form-data; boundary=b", b"nonsense", "cannot be read"),
        ("multipart/form-data; boundary=b", form(LINES).replace(b'"file"', b'"fyle"'), "no `file`"),
        ("multipart/form-data; boundary=b", form(LINES).replace(b'"purpose"', b'"file"'), "more than one `file`"),
    ],
)
def test_body_that_is_no_whole_form_is_refused(
    api: TestClient, settings: Settings, content_type: str, body: bytes, said: str
) -> None:
    refused = api.post("/v1/files", content=body, headers={"Content-Type": content_type})
    assert refused.status_code == 422
    assert said in refused.json()["detail"]
    assert kept_on_disk(settings) == set()


def test_expiry_is_the_callers_if_they_ask(api: TestClient) -> None:
    file = upload(api, fields={"expires_after[anchor]": "created_at", "expires_after[seconds]": "7200"}).json()
    assert file["expires_at"] - file["created_at"] == 7200


class TestLimits:
    @pytest.fixture
    def app_settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"max_file_bytes": 2048, "max_file_lines": 3, "max_body_bytes": 1024})

    @pytest.mark.parametrize(
        ("content", "setting"),
        [
            (b"x" * 2049, "CORELANE_MAX_FILE_BYTES"),
            (b"x" * 200_000, "CORELANE_MAX_FILE_BYTES"),
            (b"a\n \nb\r\n\nc\nd", "CORELANE_MAX_FILE_LINES"),
        ],
    )
    def test_file_over_a_limit_is_refused_by_the_settings_name(
        self, api: TestClient, app_settings: Settings, content: bytes, setting: str
    ) -> None:
        refused = upload(api, content)
        assert (refused.status_code, refused.json()["code"]) == (413, "too_large")
        assert setting in refused.json()["detail"]
        assert refused.json()["error"]["type"] == "invalid_request_error"
        assert kept_on_disk(app_settings) == set()

    def test_file_at_the_limits_is_taken(self, api: TestClient) -> None:
        assert upload(api, b"a\n\nb\n\n" + b"c" * 2042).status_code == 200


class TestBrokenStorage:
    @pytest.fixture
    def app_settings(self, settings: Settings, tmp_path: Path) -> Settings:
        (tmp_path / "occupied").write_text("a file where a folder should be")
        return settings.model_copy(update={"files_url": f"file://{tmp_path}/occupied/files"})

    def test_upload_is_refused_with_the_reason(self, api: TestClient, raw: redis.Redis) -> None:
        refused = upload(api)
        assert (refused.status_code, refused.json()["code"]) == (503, "storage_failed")
        assert "occupied" in refused.json()["detail"]
        assert refused.json()["error"]["type"] == "server_error"
        assert raw.keys("cl:file*") == []


class FullDisk(DiskFiles):
    """A disk without room."""

    def __init__(self) -> None:
        super().__init__(Path("/none"))
        self.deleted: list[str] = []

    def create(self, name: str) -> BinaryIO:
        return Path("/dev/full").open("wb", buffering=0)

    def delete(self, name: str) -> None:
        self.deleted.append(name)


def test_full_disk_is_a_503_and_what_was_written_is_deleted(settings: Settings) -> None:
    app = create_app(settings)
    place = FullDisk()
    app.state.app_state._of_plugins[Storage] = Storage(place, "d")
    with TestClient(app) as api:
        refused = upload(api)
    assert (refused.status_code, refused.json()["code"]) == (503, "storage_failed")
    assert "full" in refused.json()["detail"]
    assert len(place.deleted) == 1


def test_files_lie_at_any_url(settings: Settings) -> None:
    elsewhere = settings.model_copy(update={"files_url": "memory://bucket/files"})
    with TestClient(create_app(elsewhere)) as api:
        file = upload(api).json()["id"]
        assert fsspec.filesystem("memory").cat_file(f"/bucket/files/{file}") == LINES
        assert api.get(f"/v1/files/{file}/content").content == LINES
        api.delete(f"/v1/files/{file}")
        assert open_storage(elsewhere.files_url, elsewhere.files_root).names() == []
        gone = upload(api).json()["id"]
        fsspec.filesystem("memory").rm_file(f"/bucket/files/{gone}")
        assert api.get(f"/v1/files/{gone}/content").status_code == 404


@given(content=st.binary(max_size=300), cuts=st.lists(st.integers(0, 600)), whole=st.booleans())
def test_form_in_any_pieces_gives_the_same_file_or_none(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, cuts: list[int], whole: bool
) -> None:
    content = content.replace(b"--b", b"")
    settings = Settings(data_dir=tmp_path_factory.mktemp("form"))
    storage = open_storage(settings.files_url, settings.files_root)
    sent = form(content) if whole else form(content)[:-9]
    edges = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})

    async def body() -> AsyncIterator[bytes]:
        for start, end in itertools.pairwise(edges):
            yield sent[start:end]

    reader = FormReader(settings, storage, "file_x")
    if not whole:
        with pytest.raises(InvalidInput):
            asyncio.run(reader.read("multipart/form-data; boundary=b", body()))
        assert storage.names() == []
        return
    found = asyncio.run(reader.read("multipart/form-data; boundary=b", body()))
    assert (found.filename, found.bytes, found.fields) == ("y.jsonl", len(content), {"purpose": "batch"})
    assert b"".join(storage.read("file_x")) == content
