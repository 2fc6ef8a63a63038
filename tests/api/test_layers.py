"""What a request passes before its route: keys, scopes, rates, sizes, hosts, headers and ids. On a real Redis."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import redis
from structlog.testing import CapturingLogger

from api import errors
from api.app import create_app
from api.context import PAGE, STRICT
from api.middleware import key_cache
from api.middleware.rate_limit import address_of
from corelane.domain.api_keys import Scope, key_digest
from corelane.settings import Settings
from corelane.store.api_keys import ApiKeyStore
from corelane.store.fleet import Announcer
from corelane.store.link.blocking import Link
from tests.waiting import eventually_async

READ, SUBMIT, ADMIN = Scope.READ, Scope.SUBMIT, Scope.ADMIN

Steps = Callable[[httpx2.AsyncClient], Awaitable[None]]


@pytest.fixture
def store(settings: Settings) -> ApiKeyStore:
    return ApiKeyStore(Link(settings.redis_url))


@asynccontextmanager
async def serving(settings: Settings, **changes: Any) -> AsyncIterator[httpx2.AsyncClient]:
    app = create_app(Settings(**settings.model_dump(exclude_unset=True) | changes))
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://corelane.test", timeout=60) as client,
    ):
        yield client


def run(steps: Steps, settings: Settings, **changes: Any) -> None:
    async def go() -> None:
        async with serving(settings, **changes) as client:
            await steps(client)

    asyncio.run(go())


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_without_a_good_key_nothing_is_answered_but_probes_and_pages(settings: Settings, store: ApiKeyStore) -> None:
    _, expired = store.create("old", [READ], expires_ms=int(time.time() * 1000) - 1)
    revoked_key, revoked = store.create("gone", [READ])
    store.revoke(revoked_key.id)
    refused = {
        "needs an API key": {},
        "look like clk_…": bearer("hunter2"),
        "does not know": bearer("clk_" + 43 * "x"),
        "is expired": bearer(expired),
        "is revoked": {"X-API-Key": revoked},
    }

    async def steps(client: httpx2.AsyncClient) -> None:
        for sentence, headers in refused.items():
            for method, path in (("GET", "/v1/cores"), ("POST", "/v1/jobs"), ("GET", "/nowhere"), ("GET", "/docsy")):
                response = await client.request(method, path, headers=headers, content=b"{")
                assert response.status_code == 401, (path, sentence)
                assert response.headers["WWW-Authenticate"] == "Bearer"
                assert response.json()["code"] == "unauthorized"
                assert sentence in response.json()["detail"]
        for path in ("/livez", "/metrics", "/docs", "/docs/swagger-ui.css", "/openapi.json", "/favicon.ico"):
            assert (await client.get(path)).status_code == 200, path
        assert (await client.get("/readyz")).status_code == 503

    run(steps, settings, auth="required")


def test_readiness_tells_strangers_codes_and_no_places(settings: Settings, store: ApiKeyStore) -> None:
    reasons = ["artifact_refused: /srv/secret/place holds no manifest.json", "worker_lost: gone", "odd words: /srv"]
    Announcer(settings, "a/0").beat({"state": "failed", "reasons": json.dumps(reasons)}, [], [])

    async def steps(client: httpx2.AsyncClient) -> None:
        detail = (await client.get("/readyz")).json()["detail"]
        assert detail.endswith("default model (artifact_refused, worker_lost); GET /v1/cores has the reasons")
        assert "/srv" not in detail

    run(steps, settings, auth="required")


def test_probes_of_a_young_service_fill_no_log(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    log = CapturingLogger()
    monkeypatch.setattr(errors, "log", log)

    async def steps(client: httpx2.AsyncClient) -> None:
        assert (await client.get("/readyz")).status_code == 503
        assert not log.calls
        assert (await client.get("/v1/jobs/job_0" + 26 * "0")).status_code == 404
        assert log.calls

    async def without_redis(client: httpx2.AsyncClient) -> None:
        log.calls.clear()
        assert (await client.get("/readyz")).status_code == 503
        assert log.calls

    run(steps, settings)
    run(without_redis, settings, redis_url="redis://127.0.0.1:1/0")


def test_each_scope_opens_its_own_routes(settings: Settings, store: ApiKeyStore) -> None:
    keys = {scope: store.create(scope, [scope])[1] for scope in Scope}
    job = "/v1/jobs/job_0" + 26 * "0"
    wanted = {
        ("GET", "/v1/cores"): READ,
        ("GET", "/v1/models"): READ,
        ("GET", "/v1/aliases"): READ,
        ("GET", job): READ,
        ("GET", f"{job}/results"): READ,
        ("POST", f"{job}/cancel"): SUBMIT,
        ("POST", "/v1/jobs"): SUBMIT,
        ("PUT", "/v1/aliases/a"): ADMIN,
        ("POST", "/v1/cores/all/models"): ADMIN,
    }

    async def steps(client: httpx2.AsyncClient) -> None:
        for (method, path), opening in wanted.items():
            for scope, secret in keys.items():
                body = b'{"question": "Q", "context": "C"}' if path == "/v1/jobs" else b"{}"
                headers = bearer(secret) | {"Content-Type": "application/json"}
                response = await client.request(method, path, headers=headers, content=body)
                if scope == opening:
                    assert response.status_code not in (401, 403), (method, path)
                else:
                    assert response.status_code == 403, (method, path, scope)
                    assert response.json()["code"] == "forbidden"
                    assert f"`{opening}`" in response.json()["detail"]

    run(steps, settings, auth="required")


def test_revoked_key_is_refused_once_the_change_is_noticed(
    settings: Settings, store: ApiKeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_cache, "POLL_S", 0.05)
    key, secret = store.create("a", [READ])

    async def steps(client: httpx2.AsyncClient) -> None:
        assert (await client.get("/v1/cores", headers=bearer(secret))).status_code == 200
        store.revoke(key.id)

        async def is_refused() -> bool:
            return (await client.get("/v1/cores", headers=bearer(secret))).status_code == 401

        await eventually_async(is_refused)

    run(steps, settings, auth="required")


def test_key_costs_a_trip_once_and_its_day_is_noted(
    settings: Settings, store: ApiKeyStore, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_cache, "POLL_S", 0.05)
    _, secret = store.create("a", [READ])
    name = f"cl:key:{key_digest(secret)}"

    def look_ups() -> int:
        return int(raw.info("commandstats").get("cmdstat_hgetall", {}).get("calls", 0))

    async def steps(client: httpx2.AsyncClient) -> None:

        async def is_noted() -> bool:
            await client.get("/v1/nowhere", headers=bearer(secret))
            return bool(raw.hget(name, "used"))

        await eventually_async(is_noted)
        before = look_ups()
        for _ in range(20):
            assert (await client.get("/v1/nowhere", headers=bearer(secret))).status_code == 404
        assert look_ups() == before

    run(steps, settings, auth="required")
    assert raw.hget(name, "used") == time.strftime("%Y-%m-%d", time.gmtime())


def test_new_key_is_known_at_once_where_it_was_tried_before(settings: Settings, store: ApiKeyStore) -> None:
    async def steps(client: httpx2.AsyncClient) -> None:
        unknown = bearer("clk_" + 43 * "y")
        assert (await client.get("/v1/cores", headers=unknown)).status_code == 401
        _, secret = store.create("a", [READ])
        assert (await client.get("/v1/cores", headers=bearer(secret))).status_code == 200
        assert (await client.get("/v1/cores", headers=unknown)).status_code == 401

    run(steps, settings, auth="required")


def test_without_redis_a_key_cannot_be_looked_up_and_503_says_so(settings: Settings) -> None:
    async def steps(client: httpx2.AsyncClient) -> None:
        response = await client.get("/v1/cores", headers=bearer("clk_" + 43 * "x"))
        assert (response.status_code, response.json()["code"]) == (503, "store_unavailable")

    run(steps, settings, auth="required", redis_url="redis://127.0.0.1:1/0")


def test_where_keys_are_off_any_text_is_an_owner_of_its_own(settings: Settings) -> None:
    async def steps(client: httpx2.AsyncClient) -> None:
        assert (await client.get("/v1/cores")).status_code == 200
        assert (await client.get("/v1/cores", headers=bearer("hunter2"))).status_code == 200
        assert (await client.get("/v1/cores", headers={b"X-API-Key": b"\xe9"})).status_code == 200

    run(steps, settings, auth="off")


def test_metrics_may_be_guarded(settings: Settings, store: ApiKeyStore) -> None:
    _, reader = store.create("a", [READ])
    _, submitter = store.create("b", [SUBMIT])

    async def steps(client: httpx2.AsyncClient) -> None:
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/v1/cores")).status_code == 401
        assert (await client.get("/metrics", headers=bearer(submitter))).status_code == 403
        text = (await client.get("/metrics", headers=bearer(reader))).text
        assert 'corelane_problems_total{code="unauthorized"} 2.0' in text
        # A request that is refused at the edge has no route yet.
        assert 'corelane_http_requests_total{method="GET",route="other",status="401"} 2.0' in text

    run(steps, settings, auth="required", open_metrics=False)


def test_rate_is_told_and_kept_by_owner_and_kind(settings: Settings, store: ApiKeyStore) -> None:
    _, first = store.create("a", [READ, SUBMIT])
    _, second = store.create("b", [READ])

    async def steps(client: httpx2.AsyncClient) -> None:
        for left in (2, 1, 0):
            response = await client.get("/v1/cores", headers=bearer(first))
            assert response.status_code == 200
            assert response.headers["RateLimit-Policy"] == '"reads";q=3;w=3600'
            assert response.headers["RateLimit"].startswith(f'"reads";r={left};t=')
            assert response.headers["X-RateLimit-Limit"] == "3"
            assert response.headers["X-RateLimit-Remaining"] == str(left)
        refused = await client.get("/v1/cores", headers=bearer(first))
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert int(refused.headers["Retry-After"]) == int(refused.headers["X-RateLimit-Reset"]) >= 1
        assert (await client.get("/v1/cores", headers=bearer(second))).status_code == 200
        assert (await client.post("/v1/jobs", headers=bearer(first))).headers["X-RateLimit-Limit"] == "5"
        assert "RateLimit" not in (await client.get("/livez")).headers

    run(steps, settings, auth="required", read_rate="3/hour", submit_rate="5/hour")


def test_without_a_key_addresses_are_counted_as_far_as_proxies_are_trusted(settings: Settings) -> None:
    async def ask(client: httpx2.AsyncClient, address: str) -> int:
        return (await client.get("/v1/cores", headers={"X-Forwarded-For": address})).status_code

    async def trusting(client: httpx2.AsyncClient) -> None:
        assert [await ask(client, "198.51.100.1") for _ in range(2)] == [200, 429]
        assert await ask(client, "6.6.6.6, 198.51.100.1") == 429
        assert await ask(client, "198.51.100.1, 198.51.100.3") == 200
        assert await ask(client, "198.51.100.2") == 200

    async def trusting_nobody(client: httpx2.AsyncClient) -> None:
        assert [await ask(client, f"198.51.100.{n}") for n in (7, 8)] == [200, 429]

    run(trusting, settings, read_rate="1/hour", trusted_hops=1)
    run(trusting_nobody, settings, read_rate="1/hour")


def test_bad_keys_are_counted_by_address(settings: Settings) -> None:
    async def steps(client: httpx2.AsyncClient) -> None:
        statuses = [(await client.get("/v1/cores", headers=bearer(f"clk_{n:043}"))).status_code for n in range(3)]
        assert statuses == [401, 401, 429]

    run(steps, settings, auth="required", read_rate="2/hour")


def test_requests_are_let_through_where_they_cannot_be_counted(settings: Settings) -> None:
    async def steps(client: httpx2.AsyncClient) -> None:
        response = await client.get("/v1/cores")
        assert (response.status_code, response.json()["code"]) == (503, "store_unavailable")
        assert "RateLimit" not in response.headers

    run(steps, settings, read_rate="1/hour", redis_url="redis://127.0.0.1:1/0")


@pytest.mark.parametrize(
    ("client", "who"),
    [
        (("198.51.100.1", 5), "198.51.100.1"),
        (("::ffff:198.51.100.1", 5), "198.51.100.1"),
        (("2001:db8:1:2:3:4:5:6", 5), "2001:db8:1:2::/64"),
        (("/run/socket", 0), "unknown"),
        (None, "unknown"),
    ],
)
def test_subscriber_of_ipv6_is_counted_as_one(client: tuple[str, int] | None, who: str) -> None:
    assert address_of(client) == who


def test_body_too_large_is_refused_whether_its_length_is_told_or_not(settings: Settings) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b" " * 1000

    async def steps(client: httpx2.AsyncClient) -> None:
        for content in (b" " * 3000, pieces()):
            headers = {"Content-Type": "application/json"}
            response = await client.post("/v1/jobs", content=content, headers=headers)
            assert (response.status_code, response.json()["code"]) == (413, "too_large")
            assert "CORELANE_MAX_BODY_BYTES" in response.json()["detail"]

    run(steps, settings, max_body_bytes=2048)


@pytest.mark.parametrize("content_type", ["application/json", "application/x-ndjson"])
def test_body_that_stops_coming_is_given_up(content_type: str, settings: Settings) -> None:
    sent: list[dict[str, Any]] = []

    async def go() -> None:
        app = create_app(Settings(**settings.model_dump(exclude_unset=True) | {"body_timeout_s": 0.05}))
        beginning = iter([{"type": "http.request", "body": b'{"question": "Q",', "more_body": True}])

        async def receive() -> dict[str, Any]:
            for message in beginning:
                return message
            await asyncio.sleep(3600)
            raise AssertionError

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"content-type", content_type.encode())]
        scope = {"type": "http", "method": "POST", "path": "/v1/jobs", "query_string": b"", "headers": headers}
        await app(scope | {"http_version": "1.1", "scheme": "http", "client": ("1.1.1.1", 1)}, receive, send)

    asyncio.run(go())
    assert sent[0]["status"] == 408
    assert b"body_too_slow" in sent[1]["body"]


@pytest.mark.parametrize(("more", "closes"), [(1, False), (10, True)])
def test_rest_of_a_refused_body_is_taken_off_the_line_or_the_connection_given_up(
    more: int, closes: bool, settings: Settings
) -> None:
    """Real sockets close a connection whose body was not read; the client's next request would be lost in it."""
    pieces = iter([b"x" * 65_536] * more)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        body = next(pieces, None)
        return {"type": "http.request", "body": body or b"", "more_body": body is not None}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"transfer-encoding", b"chunked")]
    scope = {"type": "http", "method": "POST", "path": "/v1/jobs", "query_string": b"", "headers": headers}
    app = create_app(Settings(redis_url=settings.redis_url, auth="required"))
    asyncio.run(app(scope | {"http_version": "1.1", "scheme": "http", "client": ("1.1.1.1", 1)}, receive, send))
    assert sent[0]["status"] == 401
    assert not sent[-1].get("more_body", False)
    assert ((b"connection", b"close") in sent[0]["headers"]) is closes
    assert next(pieces, None) is None


def test_hosts_that_are_not_ours_are_refused_but_for_probes(settings: Settings) -> None:
    async def steps(client: httpx2.AsyncClient) -> None:
        async def status(host: str, path: str = "/v1/cores") -> int:
            return (await client.get(path, headers={"Host": host})).status_code

        assert await status("api.example.com") == 200
        assert await status("API.example.com:8443") == 200
        assert await status("eu.corelane.example") == 200
        assert await status("[::1]:8000") == 200
        assert await status("corelane.example") == 421
        assert await status("api.example.com.evil.test") == 421
        assert await status("") == 421
        assert await status("10.0.0.7:8000", "/livez") == 200

    run(steps, settings, allowed_hosts="api.example.com, *.corelane.example, ::1")


def test_api_without_keys_is_not_reached_by_a_name_that_a_stranger_can_register(settings: Settings) -> None:
    async def status(client: httpx2.AsyncClient, host: str, path: str = "/v1/cores") -> int:
        return (await client.get(path, headers={"Host": host})).status_code

    async def without_keys(client: httpx2.AsyncClient) -> None:
        for host in ("127.0.0.1:8000", "localhost:8000", "[::1]:8000", "api:8000", "corelane.ns.svc.cluster.local", ""):
            assert await status(client, host) == 200, host
        for host in (
            "rebound.example.com",
            "rebound.example.com:8000",
            "rebound.example.com.",
            "localhost.example.com",
        ):
            assert await status(client, host) == 421, host
        assert await status(client, "rebound.example.com", "/livez") == 200

    async def anyhow(client: httpx2.AsyncClient) -> None:
        assert await status(client, "qa.example.com") == 200

    run(without_keys, settings)
    run(anyhow, settings, allowed_hosts="*")
    run(anyhow, settings, trusted_hops=1)


def test_pages_of_other_origins_may_call_only_if_allowed(settings: Settings) -> None:
    asking = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,prefer"}

    async def closed(client: httpx2.AsyncClient) -> None:
        response = await client.options("/v1/jobs", headers={"Origin": "https://app.example"} | asking)
        assert not [name for name in response.headers if name.startswith("access-control")]

    async def opened(client: httpx2.AsyncClient) -> None:
        response = await client.options("/v1/jobs", headers={"Origin": "https://app.example"} | asking)
        assert response.status_code == 200
        assert response.headers["Access-Control-Allow-Origin"] == "https://app.example"
        assert "Access-Control-Allow-Credentials" not in response.headers
        other = await client.options("/v1/jobs", headers={"Origin": "https://evil.example"} | asking)
        assert "Access-Control-Allow-Origin" not in other.headers
        refused = await client.get("/v1/cores", headers={"Origin": "https://app.example"})
        assert refused.status_code == 401
        assert refused.headers["Access-Control-Allow-Origin"] == "https://app.example"
        assert "Retry-After" in refused.headers["Access-Control-Expose-Headers"]

    run(closed, settings)
    run(opened, settings, cors_origins="https://app.example", auth="required")


def test_every_response_is_marked_as_data_and_the_page_has_a_policy_of_its_own(settings: Settings) -> None:
    async def steps(client: httpx2.AsyncClient) -> None:
        for path, status in (("/livez", 200), ("/v1/jobs/x", 404), ("/nowhere", 404), ("/docs/swagger-ui.css", 200)):
            response = await client.get(path)
            assert response.status_code == status
            assert all(response.headers[name] == value for name, value in STRICT.items())
        page = await client.get("/docs")
        assert page.headers["Content-Security-Policy"] == PAGE["Content-Security-Policy"]
        assert (await client.get("/redoc")).status_code == 404

    run(steps, settings)


def test_unforeseen_error_has_the_request_id_and_the_headers_too(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(client: httpx2.AsyncClient) -> None:
        response = await client.get("/v1/cores", headers={"X-Request-ID": "req-7"})
        assert response.status_code == 500
        assert response.json()["request_id"] == response.headers["X-Request-ID"] == "req-7"
        assert response.headers["X-Content-Type-Options"] == "nosniff"

    async def broken(self: object) -> None:
        raise LookupError("what nobody foresaw")

    monkeypatch.setattr("corelane.store.fleet.Fleet.cores", broken)
    run(steps, settings)


def test_request_id_is_echoed_or_made_and_stands_in_problems(settings: Settings) -> None:
    async def steps(client: httpx2.AsyncClient) -> None:
        echoed = await client.get("/v1/jobs/x", headers={"X-Request-ID": "req-1"})
        assert echoed.headers["X-Request-ID"] == echoed.json()["request_id"] == "req-1"
        made = await client.get("/v1/jobs/x", headers={"X-Request-ID": "two words"})
        assert made.headers["X-Request-ID"] == made.json()["request_id"]
        assert len(made.headers["X-Request-ID"]) == 32
        assert len((await client.get("/livez")).headers.get_list("X-Request-ID")) == 1

    run(steps, settings)
