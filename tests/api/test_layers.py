"""What a request passes before its route: keys, scopes, rates, sizes, hosts, headers and ids. On a real Redis."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from fastapi.testclient import TestClient
from structlog.testing import CapturingLogger

from api import errors
from api.app import create_app
from api.middleware import key_cache
from api.middleware.rate_limit import address_of
from api.request_facts import PAGE, STRICT
from corelane.domain.api_keys import Scope, key_digest
from corelane.errors import StoreUnavailable
from corelane.settings import Settings
from corelane.store.api_keys import ApiKeyFinder, ApiKeyStore
from corelane.store.fleet import Announcer
from corelane.store.link.blocking import Link
from corelane.store.link.link import AsyncLink
from tests.api.office import ONE
from tests.corelane.store_bench import Bench
from tests.tools.waiting import eventually

READ, SUBMIT, ADMIN = Scope.READ, Scope.SUBMIT, Scope.ADMIN


@pytest.fixture
def store(settings: Settings) -> ApiKeyStore:
    return ApiKeyStore(Link(settings.redis_url))


def serving(settings: Settings, **changes: Any) -> TestClient:
    app = create_app(Settings(**settings.model_dump(exclude_unset=True) | changes))
    return TestClient(app, raise_server_exceptions=False, base_url="http://corelane.test")


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

    with serving(settings, auth="required") as client:
        for sentence, headers in refused.items():
            for method, path in (("GET", "/v1/cores"), ("POST", "/v1/jobs"), ("GET", "/nowhere"), ("GET", "/docsy")):
                response = client.request(method, path, headers=headers, content=b"{")
                assert response.status_code == 401, (path, sentence)
                assert response.headers["WWW-Authenticate"] == "Bearer"
                assert response.json()["code"] == "unauthorized"
                assert sentence in response.json()["detail"]
        for path in ("/livez", "/metrics", "/docs", "/docs/swagger-ui.css", "/openapi.json", "/favicon.ico"):
            assert client.get(path).status_code == 200, path
        assert client.get("/readyz").status_code == 503


def test_readiness_tells_strangers_codes_and_no_places(settings: Settings, store: ApiKeyStore) -> None:
    reasons = ["artifact_refused: /srv/secret/place holds no manifest.json", "worker_lost: gone", "odd words: /srv"]
    Announcer(settings, "a/0").beat({"state": "failed", "reasons": json.dumps(reasons)}, [], [])

    with serving(settings, auth="required") as client:
        detail = client.get("/readyz").json()["detail"]
        assert detail.endswith("default model (artifact_refused, worker_lost); GET /v1/cores has the reasons")
        assert "/srv" not in detail


def test_probes_of_a_young_service_fill_no_log(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    log = CapturingLogger()
    monkeypatch.setattr(errors, "log", log)

    with serving(settings) as client:
        assert client.get("/readyz").status_code == 503
        assert not log.calls
        assert client.get("/v1/jobs/job_0" + 26 * "0").status_code == 404
        assert log.calls
    log.calls.clear()
    with serving(settings, redis_url="redis://127.0.0.1:1/0") as client:
        assert client.get("/readyz").status_code == 503
        assert log.calls


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
        ("POST", "/v1/jobs?wait=soon"): SUBMIT,
        ("PUT", "/v1/jobs/mine"): SUBMIT,
        ("POST", "/v1/jobs/none/retry"): SUBMIT,
        ("POST", "/v1/answers"): SUBMIT,
        ("GET", "/v1/jobs/none"): READ,
        ("PUT", "/v1/aliases/a"): ADMIN,
        ("POST", "/v1/cores/all/models"): ADMIN,
    }

    with serving(settings, auth="required") as client:
        for (method, path), opening in wanted.items():
            for scope, secret in keys.items():
                body = b'{"question": "Q", "context": "C"}' if path == "/v1/jobs" else b"{}"
                headers = bearer(secret) | {"Content-Type": "application/json"}
                response = client.request(method, path, headers=headers, content=body)
                if scope == opening:
                    assert response.status_code not in (401, 403), (method, path)
                else:
                    assert response.status_code == 403, (method, path, scope)
                    assert response.json()["code"] == "forbidden"
                    assert f"`{opening}`" in response.json()["detail"]


def test_revoked_key_is_refused_once_the_change_is_noticed(
    settings: Settings, store: ApiKeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_cache, "POLL_S", 0.05)
    key, secret = store.create("a", [READ])

    with serving(settings, auth="required") as client:
        assert client.get("/v1/cores", headers=bearer(secret)).status_code == 200
        store.revoke(key.id)

        def is_refused() -> bool:
            return client.get("/v1/cores", headers=bearer(secret)).status_code == 401

        eventually(is_refused)


def test_key_costs_a_trip_once_and_its_day_is_noted(
    settings: Settings, store: ApiKeyStore, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_cache, "POLL_S", 0.05)
    _, secret = store.create("a", [READ])
    name = f"cl:key:{key_digest(secret)}"

    def look_ups() -> int:
        return int(raw.info("commandstats").get("cmdstat_hgetall", {}).get("calls", 0))

    with serving(settings, auth="required") as client:

        def is_noted() -> bool:
            client.get("/v1/nowhere", headers=bearer(secret))
            return bool(raw.hget(name, "used"))

        eventually(is_noted)
        before = look_ups()
        for _ in range(20):
            assert client.get("/v1/nowhere", headers=bearer(secret)).status_code == 404
        # Loops of the process read hashes too, but not one for each request.
        assert look_ups() - before < 20
    assert raw.hget(name, "used") == time.strftime("%Y-%m-%d", time.gmtime())


def test_use_of_a_key_is_noted_although_redis_was_away(
    settings: Settings, store: ApiKeyStore, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, secret = store.create("a", [READ])

    async def poll() -> None:
        link = AsyncLink(settings.redis_url)
        cache = key_cache.KeyCache(ApiKeyFinder(link))
        await cache.find(secret)
        with monkeypatch.context() as away:
            away.setattr(cache, "_finder", ApiKeyFinder(AsyncLink("redis://127.0.0.1:1/0")))
            with pytest.raises(StoreUnavailable):
                await cache.poll()
        await cache.poll()
        await link.close()

    asyncio.run(poll())
    assert raw.hget(f"cl:key:{key_digest(secret)}", "used") == time.strftime("%Y-%m-%d", time.gmtime())


def test_new_key_is_known_at_once_where_it_was_tried_before(settings: Settings, store: ApiKeyStore) -> None:
    with serving(settings, auth="required") as client:
        unknown = bearer("clk_" + 43 * "y")
        assert client.get("/v1/cores", headers=unknown).status_code == 401
        _, secret = store.create("a", [READ])
        assert client.get("/v1/cores", headers=bearer(secret)).status_code == 200
        assert client.get("/v1/cores", headers=unknown).status_code == 401


def test_without_redis_a_key_cannot_be_looked_up_and_503_says_so(settings: Settings) -> None:
    with serving(settings, auth="required", redis_url="redis://127.0.0.1:1/0") as client:
        response = client.get("/v1/cores", headers=bearer("clk_" + 43 * "x"))
        assert (response.status_code, response.json()["code"]) == (503, "store_unavailable")


def test_where_keys_are_off_all_callers_are_one_owner_whatever_key_they_send(
    settings: Settings, raw: redis.Redis, bell: str
) -> None:
    Bench(settings, raw, bell).core("a/0")
    keys: list[Any] = [{}, bearer("hunter2"), {b"X-API-Key": b"\xe9"}]
    with serving(settings, auth="off") as client:
        jobs = [client.post("/v1/jobs", json=ONE, headers=each).json()["id"] for each in keys]
        file = client.post("/v1/files", files={"file": b"{}"}, data={"purpose": "batch"}, headers=keys[1]).json()["id"]
        secret = client.post("/v1/webhook-secrets", json={}, headers=keys[2]).json()["id"]
        for each in keys:
            assert {job["id"] for job in client.get("/v1/jobs", headers=each).json()["data"]} == set(jobs)
            assert [found["id"] for found in client.get("/v1/files", headers=each).json()["data"]] == [file]
            assert [found["id"] for found in client.get("/v1/webhook-secrets", headers=each).json()["data"]] == [secret]
    with serving(settings, auth="off", submit_rate="2/hour") as client:
        statuses = [client.post("/v1/jobs", json=ONE, headers=bearer(f"new {n}")).status_code for n in range(4)]
    assert statuses == [202, 202, 429, 429]


def test_metrics_may_be_guarded(settings: Settings, store: ApiKeyStore) -> None:
    _, reader = store.create("a", [READ])
    _, submitter = store.create("b", [SUBMIT])

    with serving(settings, auth="required", open_metrics=False) as client:
        assert client.get("/metrics").status_code == 401
        assert client.get("/v1/cores").status_code == 401
        assert client.get("/metrics", headers=bearer(submitter)).status_code == 403
        text = client.get("/metrics", headers=bearer(reader)).text
        assert 'corelane_problems_total{code="unauthorized"} 2.0' in text
        # A request that is refused at the edge has no route yet.
        assert 'corelane_http_requests_total{method="GET",route="other",status="401"} 2.0' in text


def test_rate_is_told_and_kept_by_owner_and_kind(settings: Settings, store: ApiKeyStore) -> None:
    _, first = store.create("a", [READ, SUBMIT])
    _, second = store.create("b", [READ])

    with serving(settings, auth="required", read_rate="3/hour", submit_rate="5/hour") as client:
        for left in (2, 1, 0):
            response = client.get("/v1/cores", headers=bearer(first))
            assert response.status_code == 200
            assert response.headers["RateLimit-Policy"] == '"reads";q=3;w=3600'
            assert response.headers["RateLimit"].startswith(f'"reads";r={left};t=')
            assert response.headers["X-RateLimit-Limit"] == "3"
            assert response.headers["X-RateLimit-Remaining"] == str(left)
        refused = client.get("/v1/cores", headers=bearer(first))
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert int(refused.headers["Retry-After"]) == int(refused.headers["X-RateLimit-Reset"]) >= 1
        assert client.get("/v1/cores", headers=bearer(second)).status_code == 200
        assert client.post("/v1/jobs", headers=bearer(first)).headers["X-RateLimit-Limit"] == "5"
        assert "RateLimit" not in client.get("/livez").headers


def test_without_a_key_addresses_are_counted_as_far_as_proxies_are_trusted(settings: Settings) -> None:
    def ask(client: TestClient, address: str) -> int:
        return client.get("/v1/cores", headers={"X-Forwarded-For": address}).status_code

    with serving(settings, read_rate="1/hour", trusted_hops=1) as client:
        assert [ask(client, "198.51.100.1") for _ in range(2)] == [200, 429]
        assert ask(client, "6.6.6.6, 198.51.100.1") == 429
        assert ask(client, "198.51.100.1, 198.51.100.3") == 200
        assert ask(client, "198.51.100.2") == 200
    with serving(settings, read_rate="1/hour") as client:
        assert [ask(client, f"198.51.100.{n}") for n in (7, 8)] == [200, 429]


def test_bad_keys_are_counted_by_address(settings: Settings) -> None:
    with serving(settings, auth="required", read_rate="2/hour") as client:
        statuses = [client.get("/v1/cores", headers=bearer(f"clk_{n:043}")).status_code for n in range(3)]
        assert statuses == [401, 401, 429]


def test_requests_are_let_through_where_they_cannot_be_counted(settings: Settings) -> None:
    with serving(settings, read_rate="1/hour", redis_url="redis://127.0.0.1:1/0") as client:
        response = client.get("/v1/cores")
        assert (response.status_code, response.json()["code"]) == (503, "store_unavailable")
        assert "RateLimit" not in response.headers


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
    def pieces() -> Iterator[bytes]:
        for _ in range(3):
            yield b" " * 1000

    with serving(settings, max_body_bytes=2048) as client:
        for content in (b" " * 3000, pieces()):
            headers = {"Content-Type": "application/json"}
            response = client.post("/v1/jobs", content=content, headers=headers)
            assert (response.status_code, response.json()["code"]) == (413, "too_large")
            assert "CORELANE_MAX_BODY_BYTES" in response.json()["detail"]


@pytest.mark.parametrize("content_type", ["application/json", "application/x-ndjson"])
def test_body_that_stops_coming_is_given_up(
    content_type: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.middleware.edge.BODY_TIMEOUT_S", 0.05)
    sent: list[dict[str, Any]] = []

    async def go() -> None:
        app = create_app(settings)
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


def test_hosts_that_are_not_ours_are_refused_but_for_probes(settings: Settings) -> None:
    with serving(settings, allowed_hosts="api.example.com, *.corelane.example, ::1") as client:

        def status(host: str, path: str = "/v1/cores") -> int:
            return client.get(path, headers={"Host": host}).status_code

        assert status("api.example.com") == 200
        assert status("API.example.com:8443") == 200
        assert status("eu.corelane.example") == 200
        assert status("[::1]:8000") == 200
        assert status("corelane.example") == 421
        assert status("api.example.com.evil.test") == 421
        assert status("") == 421
        assert status("10.0.0.7:8000", "/livez") == 200


def test_api_without_keys_is_not_reached_by_a_name_that_a_stranger_can_register(settings: Settings) -> None:
    def status(client: TestClient, host: str, path: str = "/v1/cores") -> int:
        return client.get(path, headers={"Host": host}).status_code

    with serving(settings) as client:
        for host in ("127.0.0.1:8000", "localhost:8000", "[::1]:8000", "api:8000", "corelane.ns.svc.cluster.local", ""):
            assert status(client, host) == 200, host
        rebound = "rebound.example.com"
        for host in (rebound, f"{rebound}:8000", f"{rebound}.", "localhost.example.com"):
            assert status(client, host) == 421, host
        assert status(client, rebound, "/livez") == 200
    for changes in ({"allowed_hosts": "*"}, {"trusted_hops": 1}):
        with serving(settings, **changes) as client:
            assert status(client, "qa.example.com") == 200


def test_pages_of_other_origins_may_call_only_if_allowed(settings: Settings) -> None:
    asking = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,prefer"}

    ours = {"Origin": "https://app.example"}
    with serving(settings) as client:
        response = client.options("/v1/jobs", headers=ours | asking)
        assert not [name for name in response.headers if name.startswith("access-control")]
    with serving(settings, cors_origins="https://app.example", auth="required") as client:
        response = client.options("/v1/jobs", headers=ours | asking)
        assert response.status_code == 200
        assert response.headers["Access-Control-Allow-Origin"] == "https://app.example"
        assert "Access-Control-Allow-Credentials" not in response.headers
        other = client.options("/v1/jobs", headers={"Origin": "https://evil.example"} | asking)
        assert "Access-Control-Allow-Origin" not in other.headers
        refused = client.get("/v1/cores", headers=ours)
        assert refused.status_code == 401
        assert refused.headers["Access-Control-Allow-Origin"] == "https://app.example"
        assert "Retry-After" in refused.headers["Access-Control-Expose-Headers"]


def test_every_response_is_marked_as_data_and_the_page_has_a_policy_of_its_own(settings: Settings) -> None:
    with serving(settings) as client:
        for path, status in (("/livez", 200), ("/v1/jobs/x", 404), ("/nowhere", 404), ("/docs/swagger-ui.css", 200)):
            response = client.get(path)
            assert response.status_code == status
            assert all(response.headers[name] == value for name, value in STRICT.items())
        page = client.get("/docs")
        assert page.headers["Content-Security-Policy"] == PAGE["Content-Security-Policy"]
        assert client.get("/redoc").status_code == 404


def test_unforeseen_error_has_the_request_id_and_the_headers_too(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: object) -> None:
        raise LookupError("what nobody foresaw")

    monkeypatch.setattr("corelane.store.fleet.Fleet.cores", broken)
    with serving(settings) as client:
        response = client.get("/v1/cores", headers={"X-Request-ID": "req-7"})
        assert response.status_code == 500
        assert response.json()["request_id"] == response.headers["X-Request-ID"] == "req-7"
        assert response.headers["X-Content-Type-Options"] == "nosniff"


def test_request_id_is_echoed_or_made_and_stands_in_problems(settings: Settings) -> None:
    with serving(settings) as client:
        echoed = client.get("/v1/jobs/x", headers={"X-Request-ID": "req-1"})
        assert echoed.headers["X-Request-ID"] == echoed.json()["request_id"] == "req-1"
        made = client.get("/v1/jobs/x", headers={"X-Request-ID": "two words"})
        assert made.headers["X-Request-ID"] == made.json()["request_id"]
        assert len(made.headers["X-Request-ID"]) == 32
        assert len(client.get("/livez").headers.get_list("X-Request-ID")) == 1
