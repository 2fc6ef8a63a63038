"""Bodies packed by gzip are taken like others, within the same bounds; lines by any of their names; HEAD like GET."""

import gzip
from typing import Any

import httpx2
import orjson
import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from api.app import ROUTES
from api.plugin import ApiPlugin
from api.request_facts import LINES
from corelane.plugin import installed
from tests.api.conftest import Service
from tests.api.test_layers import serving

ITEMS = [{"question": "Who?", "context": "Ada wrote it."}] * 200
JSON, NDJSON = orjson.dumps({"items": ITEMS}), b"\n".join(map(orjson.dumps, ITEMS))
FORM = (
    b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n{}\n\r\n--b--\r\n'
)
KINDS = {
    "json": ("/v1/jobs", "application/json", JSON),
    "lines": ("/v1/jobs", "application/x-ndjson", NDJSON),
    "form": ("/v1/files", "multipart/form-data; boundary=b", FORM),
}


def post(http: Any, path: str, kind: str, body: bytes, coding: str = "gzip") -> httpx2.Response:
    headers = {"Content-Type": kind, "Content-Encoding": coding}
    response: httpx2.Response = http.post(path, content=body, headers=headers)
    return response


@pytest.mark.parametrize(("path", "kind", "body"), KINDS.values(), ids=KINDS)
def test_body_packed_by_gzip_is_taken_as_its_content(service: Service, path: str, kind: str, body: bytes) -> None:
    for packed in (gzip.compress(body), gzip.compress(body, 0)):
        made = post(service.http, path, kind, packed).raise_for_status().json()
        assert made.get("bytes") == 3 if path == "/v1/files" else made["counts"]["total"] == len(ITEMS)
    plain = service.http.post(path, content=body, headers={"Content-Type": kind, "Content-Encoding": "identity"})
    assert plain.is_success


WRONG = {
    "a bomb": (gzip.compress(b" " * 50_000_000), "gzip", 413, "the body has more than 8,388,608 bytes"),
    "broken off": (gzip.compress(JSON)[:-5], "gzip", 422, "breaks off before the end of its gzip"),
    "two in one": (gzip.compress(JSON) * 2, "gzip", 422, "goes on after the end of its gzip: pack it as one"),
    "plain": (JSON, "x-gzip", 422, "not gzip, as its header `Content-Encoding` says"),
    "nothing": (b"", "gzip", 422, "breaks off before the end of its gzip"),
    "brotli": (b"\x0b", "br", 415, "packed as `br`: send it as it is, or packed by gzip"),
    "packed twice": (b"\x0b", "gzip, gzip", 415, "packed as `gzip, gzip`"),
}


@pytest.mark.parametrize(("body", "coding", "status", "said"), WRONG.values(), ids=WRONG)
def test_packed_body_that_cannot_be_taken_is_refused_with_the_reason(
    api: TestClient, body: bytes, coding: str, status: int, said: str
) -> None:
    refused = post(api, "/v1/jobs", "application/json", body, coding)
    assert (refused.status_code, said in refused.json()["detail"]) == (status, True), refused.text


def test_bomb_in_lines_and_in_a_form_is_refused_at_the_bound(service: Service) -> None:
    with serving(service.bench.settings, max_upload_bytes=100_000, max_file_bytes=100_000) as client:
        for path, kind, body in KINDS.values():
            packed = gzip.compress(body.replace(b"{}", b" " * 20_000_000) + b"\n" * 20_000_000)
            refused = post(client, path, kind, packed)
            assert (refused.status_code, refused.json()["code"]) == (413, "too_large"), kind


@pytest.mark.parametrize("kind", LINES)
def test_lines_are_taken_and_sent_by_any_of_their_names(service: Service, kind: str) -> None:
    body = NDJSON + b"\n" * service.bench.settings.max_body_bytes
    made = service.http.post("/v1/jobs", content=body, headers={"Content-Type": f"{kind}; charset=utf-8"})
    assert (made.status_code, made.json()["counts"]["total"]) == (202, len(ITEMS))
    service.http.post(f"{made.headers['Location']}/cancel").raise_for_status()
    sent = service.http.get(f"{made.headers['Location']}/results", headers={"Accept": f"text/html, {kind};q=0.9"})
    assert (sent.headers["Content-Type"], len(sent.text.splitlines())) == (kind, len(ITEMS))


def test_head_is_answered_wherever_get_is(service: Service) -> None:
    job = service.http.post("/v1/jobs", json={"items": ITEMS}).json()["id"]
    routers = [
        *(each.router for each in ROUTES),
        *(each for plugin in installed(ApiPlugin) for each in plugin.routers()),
    ]
    routes = [each for router in routers for each in router.routes if isinstance(each, APIRoute)]
    paths = [route.path for route in routes if "GET" in (route.methods or ())]
    assert len(paths) > 20
    for path in paths:
        at = path.replace("{job_id}", job)
        head = service.http.head(at)
        assert (head.content, head.status_code == 405) == (b"", False), at
        if "events" not in at:
            got = service.http.get(at)
            assert (head.status_code, [*head.headers]) == (got.status_code, [*got.headers]), at
    lines = service.http.head(f"/v1/jobs/{job}/results", headers={"Accept": LINES[0]})
    assert (lines.status_code, lines.headers["Content-Type"]) == (200, LINES[0])
    assert service.http.head(f"/v1/jobs/{job}/cancel").status_code == 405


def test_links_lead_below_the_prefix_of_a_trusted_proxy(service: Service) -> None:
    def links(hops: int, prefix: str) -> tuple[str, str]:
        headers = {"X-Forwarded-Prefix": prefix}
        with serving(service.bench.settings, trusted_hops=hops) as client:
            made = [client.post("/v1/jobs", json=ITEMS[0], headers=headers) for _ in range(2)]
            page = client.get("/v1/jobs?limit=1", headers=headers)
        return made[0].headers["Location"][:11], page.headers["Link"][:10]

    assert links(1, "/qa/") == ("/qa/v1/jobs", "</qa/v1/jo")
    assert links(1, "/other, /qa") == ("/qa/v1/jobs", "</qa/v1/jo")
    for hops, prefix in ((0, "/qa"), (1, "//evil.example"), (1, "https://evil.example"), (1, "/a b"), (2, "/qa")):
        assert links(hops, prefix) == ("/v1/jobs/jo", "</v1/jobs?")
