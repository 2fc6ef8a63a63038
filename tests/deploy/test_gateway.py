"""Two services behind nginx, by the configuration in docs/deploy.md."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from benchmarks.nginx import DOCS, NGINX, run_nginx
from corelane.domain.api_keys import Scope, new_key
from corelane.domain.ids import ALPHABET, cell_of, new_id, new_job_id
from corelane.settings import Settings
from corelane.store.api_keys import ApiKeyStore
from corelane.store.link.blocking import Link
from tests.corelane.store_bench import Bench, LoneCore, answered, claimed
from tests.integration.test_event_streams import Api
from tests.tools.servers import RedisNode, running
from tests.tools.sse import parse_blocks

PAGE = DOCS / "deploy.md"

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
class Service:
    """An API with a Redis and a core of its own, and a key that it made."""

    api: Api
    bench: Bench
    core: LoneCore
    secret: str

    def answer(self) -> None:
        """Answer what waits."""
        claim = claimed(self.core)
        self.core.commit(claim.lease, answered(claim))


@dataclass
class Gateway:
    """nginx in front of two services."""

    http: httpx2.Client
    services: dict[str, Service]

    def call(self, method: str, path: str, cell: str, **more: Any) -> httpx2.Response:
        """Ask with the key of a service."""
        return self.http.request(method, path, headers={"X-API-Key": self.services[cell].secret}, **more)

    def submit(self, cell: str) -> str:
        """Submit a job with the key of a service; return its id."""
        return str(self.call("POST", "/v1/jobs", cell, json=JOB).raise_for_status().json()["id"])

    def answers(self, cell: str) -> str:
        """Submit a job with the key of a service, and have it answered; return its id."""
        job = self.submit(cell)
        self.services[cell].answer()
        assert self.call("GET", f"/v1/jobs/{job}", cell).json()["status"] == "succeeded"
        return job


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, bell: str) -> Iterator[Gateway]:
    if NGINX is None:
        pytest.skip("there is no nginx: make nginx")
    with ExitStack() as stack:
        services = {cell: start(stack, tmp_path_factory.mktemp(f"service{cell}"), cell, bell) for cell in "01"}
        changes = [
            (f"server 127.0.0.1:800{cell};", f"server {service.api.url.removeprefix('http://')};")
            for cell, service in services.items()
        ]
        seen = ("server {", "server { add_header Sent-To $upstream always;")
        url = stack.enter_context(run_nginx(PAGE, *changes, seen))
        yield Gateway(stack.enter_context(httpx2.Client(base_url=url, timeout=60)), services)


def start(stack: ExitStack, folder: Path, cell: str, bell: str) -> Service:
    node = RedisNode(folder)
    stack.enter_context(running(node))
    settings = Settings(redis_url=node.url, data_dir=folder, cell=cell, lease_s=600)
    with closing(Link(node.url)) as link:
        _, secret = ApiKeyStore(link).create("ann", Scope, cell=cell)
    api = stack.enter_context(Api(node.url, folder, CORELANE_CELL=cell, CORELANE_AUTH="required"))
    bench = Bench(settings, node.client(), bell)
    return Service(api, bench, bench.core("a/0"), secret)


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
    service, job = gateway.services[cell], gateway.submit(cell)
    headers = {"X-API-Key": service.secret}
    with gateway.http.stream("GET", f"/v1/jobs/{job}/events", headers=headers) as response:
        pieces = response.iter_bytes()
        assert next(pieces).startswith(b"retry:")
        service.answer()
        *_, last = parse_blocks(pieces)
    assert (last.type, last.data["id"], last.data["status"]) == ("job.completed", job, "succeeded")


def test_gateway_answers_probes_itself_and_has_no_console(gateway: Gateway) -> None:
    assert gateway.http.get("/livez").text == "ok\n"
    assert gateway.http.get("/console/jobs").status_code == 404


def test_service_that_is_down_hurts_its_own_callers_alone(gateway: Gateway) -> None:
    job, down = gateway.answers("1"), gateway.services["1"].api
    down.stop()
    assert gateway.call("GET", f"/v1/jobs/{job}", "1").status_code == 502
    assert cell_of(gateway.answers("0")) == "0"
    assert gateway.http.get("/livez").status_code == 200
    down.start()
    assert gateway.call("GET", f"/v1/jobs/{job}", "1").json()["status"] == "succeeded"


def test_configuration_knows_every_name_of_a_service() -> None:
    text = PAGE.read_text()
    [letters] = set(re.findall(r"\[(0-9a-hjkmnp-tv-z)\]", text))
    assert "".join(each for each in map(chr, range(128)) if re.fullmatch(f"[{letters}]", each)) == ALPHABET
