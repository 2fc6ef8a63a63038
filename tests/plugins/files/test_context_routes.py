"""Stored contexts over HTTP: put, posted, listed, read and deleted; and named by jobs of every form."""

from typing import Any

import orjson
import pytest

from corelane.client import Client
from corelane.domain.texts import text_id
from tests.api.conftest import Service
from tests.api.test_jobs import LINES
from tests.corelane.store_bench import VERSION, answered
from tests.tools.keys import as_owner

TEXT = "Ada was the first to write a program. Zoë came later."
NAME = text_id(TEXT)

#: Lines of a batch: the custom id, and what is different in the body.
BATCH: tuple[tuple[str, dict[str, str]], ...] = (("a", {}), ("b", {"context_id": text_id("unknown")}))

PLAIN = {"Content-Type": "text/plain; charset=utf-8"}


def code_of(response: Any) -> str:
    return response.json()["code"]


def put(service: Service, text: str = TEXT, **headers: str) -> Any:
    return service.http.put(
        f"/v1/contexts/{text_id(text)}", content=text.encode(), headers=PLAIN | as_owner("other") | headers
    )


def as_other(service: Service, method: str, path: str, **given: Any) -> Any:
    given["headers"] = as_owner("other") | given.get("headers", {})
    return service.http.request(method, path, **given)


def asked(service: Service) -> list[str]:
    """Return the passages of what waits, as a core reads them, and answer it."""
    core = service.bench.core("a/0")
    texts: list[str] = []
    while (claim := core.claim([VERSION], linger=False)) is not None:
        texts += [context for stretch in core.fetch(claim) for _, _, context in stretch.items]
        core.commit(claim.lease, answered(claim))
    return texts


def test_context_is_put_once_and_shown(service: Service) -> None:
    first = put(service)
    assert (first.status_code, first.headers["Location"]) == (201, f"/v1/contexts/{NAME}")
    found = first.json()
    assert (found["object"], found["id"], found["bytes"], found["chars"]) == ("context", NAME, 54, 53)
    assert put(service).status_code == 200
    posted = as_other(service, "POST", "/v1/contexts", json={"text": TEXT, "name": "ada", "expires_in_s": 60})
    assert (posted.status_code, posted.json()["name"]) == (200, "ada")
    assert posted.json()["expires_at"] >= found["expires_at"]
    assert as_other(service, "GET", f"/v1/contexts/{NAME}").json()["name"] == "ada"
    text = as_other(service, "GET", f"/v1/contexts/{NAME}/text")
    assert (text.text, text.headers["Content-Type"]) == (TEXT, "text/plain; charset=utf-8")


def test_list_is_newest_first_and_in_pages(service: Service) -> None:
    texts = [f"passage {number}" for number in range(5)]
    for text in texts:
        put(service, text)
    found, cursor = [], None
    while True:
        page = as_other(
            service, "GET", "/v1/contexts", params={"limit": 2} | ({"after": cursor} if cursor else {})
        ).json()
        assert page["bytes"] == 45
        found += [each["id"] for each in page["data"]]
        cursor = page["next"]
        if not page["has_more"]:
            break
    assert sorted(found) == sorted(map(text_id, texts))
    created = [as_other(service, "GET", f"/v1/contexts/{each}").json()["created_at"] for each in found]
    assert created == sorted(created, reverse=True)


@pytest.mark.parametrize(
    ("content", "kind", "status", "code"),
    [
        (b"another text", "text/plain", 422, "invalid_input"),
        (b" \n", "text/plain", 422, "invalid_input"),
        (b"", "text/plain", 422, "invalid_input"),
        (b"\xff", "text/plain", 422, "invalid_input"),
        (b'{"txt": "a"}', "application/json", 422, "invalid_input"),
        (b'{"text": "a", "expires_in_s": 1}', "application/json", 422, "invalid_input"),
        (b'{"text": "a", "expires_in_s": 99999999}', "application/json", 422, "invalid_input"),
        (b"%PDF", "application/pdf", 415, "bad_request"),
        (b"a" * 2_000_001, "text/plain", 413, "too_large"),
    ],
)
def test_what_is_no_context_of_that_id_is_refused(
    service: Service, content: bytes, kind: str, status: int, code: str
) -> None:
    refused = service.http.put(f"/v1/contexts/{NAME}", content=content, headers={"Content-Type": kind})
    assert (refused.status_code, code_of(refused)) == (status, code)
    if content == b"another text":
        assert text_id("another text") in refused.json()["detail"]
    assert not list(service.bench.raw.scan_iter("cl:context*"))


def test_jobs_of_every_form_name_a_stored_context(service: Service) -> None:
    put(service)

    def item(question: str, name: str = NAME) -> dict[str, str]:
        return {"question": question, "context_id": name}

    lone = as_other(service, "POST", "/v1/jobs", json=item("who"))
    assert lone.status_code == 202, lone.text
    many = {"contexts": {"b": "Bob."}, "items": [item("what"), item("who", "b"), item("when")]}
    assert as_other(service, "POST", "/v1/jobs", json=many).status_code == 202
    assert as_other(service, "PUT", "/v1/jobs/mine", json=item("why")).status_code == 202
    assert sorted(asked(service)) == sorted([TEXT, TEXT, "Bob.", TEXT, TEXT])


def test_lines_name_stored_contexts_and_an_unknown_one_is_told_by_its_line(service: Service) -> None:
    put(service)
    line = orjson.dumps({"question": "who", "context_id": NAME}) + b"\n"
    wrong = orjson.dumps({"question": "who", "context_id": text_id("b")}) + b"\n"
    refused = as_other(service, "POST", "/v1/jobs", content=line + wrong, headers=LINES)
    assert (refused.status_code, code_of(refused)) == (422, "unknown_context")
    assert refused.json()["detail"].startswith(f"line 2: there is no stored text {text_id('b')}")
    assert not list(service.bench.settings.files_root.glob("*"))
    taken = as_other(service, "POST", "/v1/jobs", content=line * 40, headers=LINES)
    assert taken.status_code == 202
    assert service.bench.raw.hget(f"cl:job:{{{taken.json()['id']}}}", "stored") == NAME.removeprefix("ctx_")


def test_unknown_context_is_told_and_others_contexts_are_unknown(guarded: Service) -> None:
    put(guarded)
    for body in ({"question": "who", "context_id": NAME}, {"items": [{"question": "who", "context_id": NAME}]}):
        refused = guarded.http.post("/v1/jobs", json=body)
        assert (refused.status_code, code_of(refused)) == (422, "unknown_context")
    typed = as_other(guarded, "POST", "/v1/jobs", json={"question": "who", "context_id": "tower"})
    assert (typed.status_code, code_of(typed)) == (422, "invalid_input")
    for method, path in (("GET", NAME), ("GET", f"{NAME}/text"), ("DELETE", NAME), ("GET", "ctx_1")):
        assert guarded.http.request(method, f"/v1/contexts/{path}").status_code == 404
    assert guarded.http.get("/v1/contexts").json()["data"] == []


def test_deleted_context_is_unknown_at_once(service: Service) -> None:
    put(service)
    one = {"question": "who", "context_id": NAME}
    assert as_other(service, "POST", "/v1/jobs", json=one).status_code == 202
    assert as_other(service, "DELETE", f"/v1/contexts/{NAME}").status_code == 204
    assert as_other(service, "DELETE", f"/v1/contexts/{NAME}").status_code == 404
    assert code_of(as_other(service, "POST", "/v1/jobs", json=one)) == "unknown_context"
    assert code_of(as_other(service, "POST", "/v1/jobs", json=one | {"dry_run": True})) == "unknown_context"
    assert asked(service) == [TEXT]


def test_dry_run_forecasts_as_for_the_text_itself(service: Service) -> None:
    text = TEXT * 200
    put(service, text)
    forecasts = [
        as_other(service, "POST", "/v1/jobs", json={"question": "who", "dry_run": True} | given).json()
        for given in ({"context_id": text_id(text)}, {"context": text})
    ]
    shown = [{name: each[name] for name in ("items", "tokens", "windows", "core_s")} for each in forecasts]
    assert shown[0] == shown[1]
    line = orjson.dumps({"question": "who", "context_id": text_id(text)}) + b"\n"
    sent = as_other(service, "POST", "/v1/jobs", content=b'{"dry_run": true}\n' + line, headers=LINES)
    assert (sent.status_code, sent.json()["tokens"]) == (200, forecasts[1]["tokens"])


def test_batch_dry_run_measures_stored_contexts(service: Service) -> None:
    put(service)
    body = {"question": "who", "context_id": NAME}
    asked = [{"custom_id": name, "method": "POST", "url": "/v1/answers", "body": body | more} for name, more in BATCH]
    content = b"".join(orjson.dumps(each) + b"\n" for each in asked)
    files = {"file": ("in.jsonl", content)}
    file = as_other(service, "POST", "/v1/files", files=files, data={"purpose": "batch"}).json()["id"]
    given = {"input_file_id": file, "endpoint": "/v1/answers", "completion_window": "24h", "dry_run": True}
    found = as_other(service, "POST", "/v1/batches", json=given).json()
    assert (found["lines"], found["bad_lines"], found["items"]) == (2, 1, 1)
    assert found["errors"][0]["code"] == "unknown_context"


def test_client_stores_names_shows_and_deletes_what_ask_can_name(service: Service) -> None:
    with Client(service.url) as client:
        assert client.put_context(TEXT, name="tower").id == NAME
        assert client.read_context(NAME) == TEXT
        assert [each.id for each in client.iter_contexts()] == [NAME]
        job = client.submit([{"question": "who", "context_id": client.put_context(TEXT).id}])
        assert asked(service) == [TEXT]
        assert job.counts.total == 1
        client.delete_context(NAME)
    assert service.http.get("/v1/contexts").json()["data"] == []
