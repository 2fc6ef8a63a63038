"""Two services behind nginx, by the configuration in docs/22-redis.md; that of Envoy sends requests to the same."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from benchmarks.nginx import DOCS, NGINX, run_nginx
from corelane.domain.api_keys import new_key
from corelane.domain.ids import ALPHABET, cell_of, new_id, new_job_id
from tests.integration.conftest import Fleet, start_fleet, stop_fleet
from tests.sse import parse_blocks

PAGE = DOCS / "22-redis.md"

NULL = {"CORELANE_TARGET": "null", "CORELANE_MODEL": "null", "CORELANE_AUTH": "required", "CORELANE_TRUSTED_HOPS": "1"}

JOB = {"items": [{"question": "Who?", "context": "Ada wrote it."}]}

#: Headers and the path of a request, and the service that it goes to.
ASKED: list[tuple[dict[str, str], str, str]] = [
    ({"X-API-Key": new_key("1")}, "/v1/jobs", "1"),
    ({"X-API-Key": new_key("1")}, f"/v1/jobs/{new_job_id(cell='0')}", "1"),
    ({"X-API-Key": new_key("0")}, f"/v1/jobs/{new_job_id(cell='1')}", "0"),
    ({"X-API-Key": new_key("7")}, "/v1/jobs", "0"),
    ({"X-API-Key": new_key("0"), "Authorization": f"Bearer {new_key('1')}"}, "/v1/jobs", "0"),
    ({"X-API-Key": new_key("1"), "Authorization": f"Bearer {new_key('0')}"}, "/v1/jobs", "1"),
    # A key of service `0` that happens to begin like one of service `1`.
    ({"X-API-Key": "clk_1_" + 41 * "x"}, "/v1/jobs", "0"),
    ({"Authorization": f"Bearer {new_key('1')}"}, "/v1/batches?limit=1", "1"),
    ({"Authorization": f"bearer {new_key('1')}"}, "/v1/hf", "1"),
    ({"Authorization": f"Bearer {new_key('0')}"}, "/v1/hf", "0"),
    ({"Authorization": "Bearer something"}, f"/v1/jobs/{new_job_id(cell='1')}", "0"),
    ({}, f"/v1/jobs/{new_job_id(cell='1')}", "1"),
    ({}, f"/v1/jobs/{new_job_id(cell='1')}/events?after=3", "1"),
    ({}, f"/v1/files/{new_id('file', cell='1')}/content", "1"),
    ({}, f"/v1/deliveries/{new_id('evt', cell='1')}_completed/redeliver", "1"),
    ({}, f"/v1/jobs/{new_job_id(cell='0')}", "0"),
    ({}, f"/v1/jobs/{new_job_id(cell='7')}", "0"),
    ({}, "/v1/jobs/job_1", "0"),
    ({}, "/v1/jobs/my-job_1", "0"),
    ({}, "/docs", "0"),
]


@dataclass
class Gateway:
    """nginx in front of two services, and what they are: each with a key that it made."""

    http: httpx2.Client
    fleets: dict[str, Fleet]
    secrets: dict[str, str]

    def call(self, method: str, path: str, cell: str, wait_s: int = 0, **more: Any) -> httpx2.Response:
        """Ask with the key of a service."""
        headers = {"X-API-Key": self.secrets[cell], "Prefer": f"wait={wait_s}"}
        return self.http.request(method, path, headers=headers, **more)

    def answers(self, cell: str) -> str:
        """Submit a job with the key of a service, and wait for its answer; return its id."""
        done = self.call("POST", "/v1/jobs", cell, wait_s=30, json=JOB)
        assert (done.status_code, done.json()["status"]) == (200, "succeeded")
        return str(done.json()["id"])


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    if NGINX is None:
        pytest.skip("there is no nginx: make nginx")
    fleets: dict[str, Fleet] = {}
    with ExitStack() as stack:

        def stop_all() -> None:
            for fleet in fleets.values():
                stop_fleet(fleet)

        stack.callback(stop_all)
        for cell in "01":
            fleets[cell] = start(tmp_path_factory.mktemp(f"service{cell}"), cell)
        changes = [
            (f"server 127.0.0.1:800{cell};", f"server {fleet.url.removeprefix('http://')};")
            for cell, fleet in fleets.items()
        ]
        seen = ("location / {", "location / { add_header Sent-To $upstream always;")
        url = stack.enter_context(run_nginx(PAGE, *changes, seen))
        http = stack.enter_context(httpx2.Client(base_url=url, timeout=60))
        yield Gateway(http, fleets, {cell: create_key(fleet.data) for cell, fleet in fleets.items()})


def start(folder: Path, cell: str, **more: str) -> Fleet:
    return start_fleet(folder, folder, "--cores", "1", "--no-flower", CORELANE_CELL=cell, **NULL, **more)


def create_key(data: Path) -> str:
    scopes = [part for scope in ("submit", "read", "admin") for part in ("--scope", scope)]
    named = ["--name", "ann", "--owner", "ann", "--data", str(data)]
    argv = [sys.executable, "-m", "corelane", "keys", "create", *named, *scopes, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["key"])


def test_request_goes_to_the_service_of_its_key_or_else_of_its_id(gateway: Gateway) -> None:
    sent = [gateway.http.get(path, headers=headers).headers["sent-to"] for headers, path, _ in ASKED]
    assert sent == [f"corelane_{cell}" for _, _, cell in ASKED]


def test_key_of_each_service_reaches_its_own_jobs_alone(gateway: Gateway) -> None:
    jobs = {cell: gateway.answers(cell) for cell in "01"}
    for cell, job in jobs.items():
        assert cell_of(job) == cell
        listed = {each["id"] for each in gateway.call("GET", "/v1/jobs", cell).json()["data"]}
        assert listed & set(jobs.values()) == {job}
    assert gateway.call("GET", f"/v1/jobs/{jobs['1']}", "0").status_code == 404
    strange = gateway.http.get("/v1/jobs", headers={"X-API-Key": new_key("1")})
    assert (strange.status_code, strange.json()["code"]) == (401, "unauthorized")


@pytest.mark.parametrize("cell", "01")
def test_stream_of_events_passes_through_as_it_comes(gateway: Gateway, cell: str) -> None:
    """The job waits until the stream has begun."""
    gateway.call("PUT", "/v1/pauses/owner/ann", cell).raise_for_status()
    job = gateway.call("POST", "/v1/jobs", cell, json=JOB).json()["id"]
    headers = {"X-API-Key": gateway.secrets[cell]}
    with gateway.http.stream("GET", f"/v1/jobs/{job}/events", headers=headers) as response:
        pieces = response.iter_bytes()
        assert next(pieces).startswith(b"retry:")
        gateway.call("DELETE", "/v1/pauses/owner/ann", cell).raise_for_status()
        *_, last = parse_blocks(pieces)
    assert (last.type, last.data["id"], last.data["status"]) == ("job.completed", job, "succeeded")


def test_gateway_answers_probes_itself_and_has_no_console(gateway: Gateway) -> None:
    assert gateway.http.get("/livez").text == "ok\n"
    assert gateway.http.get("/console/jobs").status_code == 404


def test_service_that_is_down_hurts_its_own_callers_alone(gateway: Gateway) -> None:
    down = gateway.fleets["1"]
    job = gateway.answers("1")
    stop_fleet(down)
    try:
        assert gateway.call("GET", f"/v1/jobs/{job}", "1").status_code == 502
        assert cell_of(gateway.answers("0")) == "0"
        assert gateway.http.get("/livez").status_code == 200
    finally:
        gateway.fleets["1"] = start(down.data, "1", CORELANE_PORT=down.url.rpartition(":")[2])
    assert gateway.call("GET", f"/v1/jobs/{job}", "1").json()["status"] == "succeeded"


def envoy() -> dict[str, Any]:
    """Return the resources of Envoy on the page."""
    yaml: Any = pytest.importorskip("yaml")
    [text] = re.findall(r"^```yaml\n(.+?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(text)["static_resources"]
    return found


def matches(match: dict[str, Any], headers: dict[str, str], path: str) -> bool:
    """Whether a route of Envoy takes a request; its regular expressions are for whole texts."""
    given = {name.lower(): value for name, value in headers.items()}
    if "path" in match:
        is_path = path == match["path"]
    elif "safe_regex" in match:
        is_path = re.fullmatch(match["safe_regex"]["regex"], path) is not None
    else:
        is_path = path.startswith(match["prefix"])
    for header in match.get("headers", []):
        value = given.get(header["name"])
        regex = ".*" if header.get("present_match") else header["string_match"]["safe_regex"]["regex"]
        if value is None or re.fullmatch(regex, value) is None:
            return False
    return is_path


def test_envoy_has_the_same_routes() -> None:
    found = envoy()
    [listener], clusters = found["listeners"], [cluster["name"] for cluster in found["clusters"]]
    [chain] = listener["filter_chains"]
    [manager] = chain["filters"]
    [host] = manager["typed_config"]["route_config"]["virtual_hosts"]
    routes = host["routes"]
    assert [route["route"] for route in routes if "route" in route and route["route"]["cluster"] not in clusters] == []
    for headers, asked, cell in ASKED:
        path = asked.partition("?")[0]
        chosen = next(route for route in routes if matches(route["match"], headers, path))
        assert chosen["route"] == {"cluster": f"corelane_{cell}", "timeout": "0s"}, (headers, path)
    own = {
        route["match"].get("path") or route["match"].get("prefix"): route for route in routes if "route" not in route
    }
    assert {path: route["direct_response"]["status"] for path, route in own.items()} == {"/livez": 200, "/console": 404}


def test_configurations_know_every_name_of_a_service() -> None:
    text = PAGE.read_text()
    [letters] = set(re.findall(r"\[(0-9a-hjkmnp-tv-z)\]", text))
    assert "".join(each for each in map(chr, range(128)) if re.fullmatch(f"[{letters}]", each)) == ALPHABET
