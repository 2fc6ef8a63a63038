"""Console auth: sessions, whose pages may change something, and the headers of every page."""

import re
from collections.abc import Callable, Iterator
from typing import cast

import httpx2
import pytest
import redis
from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from api.app import create_app
from corelane.domain.api_keys import Scope
from corelane.plugins.console.auth import COOKIE
from corelane.plugins.console.pages.nav import NAV
from corelane.settings import Settings
from corelane.store.api_keys import ApiKeyStore
from corelane.store.link.blocking import Link
from tests.plugins.console.conftest import OWN

Open = Callable[..., TestClient]


@pytest.fixture
def api_keys(settings: Settings) -> Iterator[ApiKeyStore]:
    link = Link(settings.redis_url)
    yield ApiKeyStore(link)
    link.close()


@pytest.fixture
def visit(settings: Settings) -> Iterator[Open]:
    """Yield a function that opens a client of an app with some settings changed."""
    opened: list[TestClient] = []

    def visit(base: str = "http://testserver", **changes: object) -> TestClient:
        app = create_app(settings.model_copy(update={"auth": "required", **changes}))
        client = TestClient(app, base_url=base, follow_redirects=False, raise_server_exceptions=False)
        opened.append(client.__enter__())
        return client

    yield visit
    for client in opened:
        client.__exit__(None, None, None)


def sign_in(client: TestClient, secret: str, **form: str) -> httpx2.Response:
    return client.post("/console/sign-in", data={"key": secret, **form}, headers=OWN)


def test_session_stands_for_its_key_and_only_on_the_console(visit: Open, api_keys: ApiKeyStore) -> None:
    client = visit()
    _, secret = api_keys.create("me", [Scope.READ])
    reply = sign_in(client, secret)
    assert (reply.status_code, reply.headers["location"]) == (303, "../console/")
    cookie = reply.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path" not in cookie
    assert "secure" not in cookie
    assert client.get("/console/models").status_code == 200
    assert client.get("/v1/jobs", headers={"Cookie": f"{COOKIE}={client.cookies[COOKIE]}"}).status_code == 401


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ("a=b; {cookie}={session}", 200),
        ("a=b;{cookie}={session} ;c", 200),
        ("x{cookie}={session}", 303),
        ('{cookie}="{session}"', 303),
        ("a={blank}; {cookie}={session}", 303),
    ],
    ids=["second", "untidy", "other", "quoted", "long"],
)
def test_session_is_found_by_name_as_it_is_written_in_the_first_8_kb_of_cookies(
    visit: Open, api_keys: ApiKeyStore, sent: str, status: int
) -> None:
    """The interpreter's own reader of cookies takes seconds for 80 kB of quoted ones, before a key was asked for."""
    session = sign_in(visit(), api_keys.create("me", [Scope.READ])[1]).cookies[COOKIE]
    cookie = sent.format(cookie=COOKIE, session=session, blank="a" * 8192)
    assert visit().get("/console/models", headers={"Cookie": cookie}).status_code == status


def test_no_route_reads_a_cookie_of_others(visit: Open) -> None:
    """FastAPI reads all cookies of a request, whatever its route takes: a long one took seconds on each route."""
    client = visit(auth="off")

    async def show(request: Request) -> dict[str, str]:
        return request.cookies

    cast("FastAPI", client.app).router.routes.insert(0, APIRoute("/v1/cookies", show, methods=["GET"]))
    sent = {"Cookie": r'a="\a\a"; corelane_session=s; b="' + "\\a" * 1000 + f'"; other={"1" * 200}'}
    assert client.get("/v1/cookies", headers=sent).json() == {"corelane_session": "s"}


def test_cookie_is_secure_over_https(visit: Open, api_keys: ApiKeyStore) -> None:
    reply = sign_in(visit("https://testserver"), api_keys.create("me", [Scope.READ])[1])
    assert "secure" in reply.headers["set-cookie"].lower()


def test_store_knows_neither_key_nor_session(visit: Open, api_keys: ApiKeyStore, raw: redis.Redis) -> None:
    client = visit()
    _, secret = api_keys.create("me", [Scope.READ])
    sign_in(client, secret)
    [name] = raw.keys("cl:session:*")
    kept = f"{name!s} {raw.get(name)!s}"
    assert client.cookies[COOKIE] not in kept
    assert secret not in kept
    assert 0 < raw.ttl(name) <= 12 * 3600


def test_revoked_key_ends_its_sessions_at_once(visit: Open, api_keys: ApiKeyStore) -> None:
    client = visit()
    key, secret = api_keys.create("me", [Scope.READ])
    sign_in(client, secret)
    assert client.get("/console/").status_code == 200
    api_keys.revoke(key.id)
    reply = client.get("/console/models")
    assert (reply.status_code, reply.headers["location"]) == (303, "../console/sign-in?next=models")


def test_sign_out_ends_the_session(visit: Open, api_keys: ApiKeyStore, raw: redis.Redis) -> None:
    client = visit()
    sign_in(client, api_keys.create("me", [Scope.READ])[1])
    assert client.post("/console/sign-out", headers=OWN).status_code == 303
    assert not raw.keys("cl:session:*")


def test_sign_in_leads_to_no_other_site(visit: Open, api_keys: ApiKeyStore) -> None:
    client, (_, secret) = visit(), api_keys.create("me", [Scope.READ])
    for to in ("//evil.example", "https://evil.example", "/etc", "..//evil", "a\r\nb"):
        assert sign_in(client, secret, next=to).headers["location"] == "../console/", to


def test_unknown_session_is_led_to_the_form(visit: Open) -> None:
    client = visit()
    for cookie in ("x" * 5000, "nothing", '"'):
        reply = client.get("/console/", headers={"Cookie": f"{COOKIE}={cookie}"})
        assert (reply.status_code, reply.headers["location"]) == (303, "../console/sign-in")
    part = client.get("/console/models", headers={"HX-Request": "true"})
    assert (part.status_code, part.headers["hx-redirect"]) == (401, "sign-in")
    assert client.get("/console/stream?page=models", headers={"Accept": "text/event-stream"}).status_code == 401


def test_link_on_another_site_finds_the_session_at_the_second_step(visit: Open) -> None:
    reply = visit().get("/console/models", headers={"Sec-Fetch-Site": "cross-site"})
    assert 'http-equiv="refresh"' in reply.text


def test_changes_come_from_own_pages_only(visit: Open) -> None:
    client = visit(auth="off")
    cases: list[tuple[dict[str, str], int]] = [
        ({"Sec-Fetch-Site": "same-origin"}, 422),
        ({"Origin": "http://testserver"}, 422),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://testserver"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({}, 403),
    ]
    for headers, status in cases:
        reply = client.post("/console/models/load", data={"model": "x@"}, headers=headers)
        assert reply.status_code == status, headers


def test_admin_pages_need_the_scope(visit: Open, api_keys: ApiKeyStore) -> None:
    client = visit()
    sign_in(client, api_keys.create("me", [Scope.READ])[1])
    for path, form in (
        ("models/load", {"model": "m"}),
        ("models/reload", {"version": "m@0"}),
        ("models/unload", {"version": "m@0"}),
        ("aliases/set", {"alias": "a", "version": "m@0", "weight": "1"}),
        ("aliases/unset", {"alias": "a"}),
    ):
        reply = client.post(f"/console/{path}", data=form, headers=OWN)
        assert reply.status_code == 403, path
        assert "scope <code>admin</code>" in reply.text
    submitter = visit()
    sign_in(submitter, api_keys.create("submitter", [Scope.SUBMIT])[1])
    assert submitter.get("/console/").status_code == 403


def test_sign_in_is_rate_limited(visit: Open) -> None:
    client = visit(submit_rate="2/minute")
    replies = [sign_in(client, "wrong") for _ in range(3)]
    assert [reply.status_code for reply in replies] == [401, 401, 429]
    assert "clk_" in replies[0].text


def test_every_page_keeps_the_policy(visit: Open, settings: Settings) -> None:
    client = visit(auth="off")
    for entry in NAV:
        reply = client.get(f"/console/{entry.path.strip('.')}")
        assert reply.status_code == 200, entry
        policy = dict(part.strip().split(" ", 1) for part in reply.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=", reply.text)
        # Relative to the console, by the page's <base>: anchors and bare queries would lead to the overview.
        addresses = re.findall(r'\s(?:src|href|action|hx-get|hx-post)="([^"]*)"', reply.text)
        assert addresses
        assert not [address for address in addresses if address.startswith(("/", "http", "?", "#"))]


def test_console_can_be_left_out(visit: Open) -> None:
    client = visit(auth="off", console=False)
    for path in ("/console", "/console/", "/console/static/console.css"):
        assert client.get(path).status_code == 404
    assert visit(console=False).get("/console/").json()["code"] == "unauthorized"


@pytest.mark.parametrize("path", ["https://evil.example/x", "javascript:alert(1)", "/evil.example"])
def test_page_that_does_not_exist_links_to_no_other_site(visit: Open, path: str) -> None:
    page = visit(auth="off").get(f"/console/{path}")
    assert page.status_code == 404
    links = re.findall(r'(?:href|src|action)="([^"]*)"', page.text)
    assert not [link for link in links if re.match(r"[a-z]+:|//|/", link)]
