"""The monitoring in the lab: Prometheus scrapes, and every query of the boards has data.

Where the published images cannot be had, Debian's Prometheus stands in for that of Prometheus, in an image made here.
There is no such stand-in for Grafana (neither Debian nor PyPI nor npm has it), so without its image the boards' queries
are asked of Prometheus, as Grafana would, and that Grafana itself was not run is said.
"""

import itertools
import json
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from deploy.monitoring import boards
from tests.lab.engine import Project
from tests.monitoring.queries import OF_ACCIDENTS, OF_DEVICES, metrics_in
from tests.tools.passages import PASSAGES

STAND_IN = "corelane-lab/prometheus"

#: Debian's Prometheus as the published image is: its user is nobody, its data in /prometheus. Debian's promtool is too
#: old for `check healthy`, which the compose file asks.
DOCKERFILE = r"""
FROM debian:bookworm-slim
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus && rm -rf /var/lib/apt/lists/* \
 && mkdir -p /prometheus && chown nobody:nogroup /prometheus \
 && printf '#!/bin/sh\nexec /usr/bin/promtool query instant http://127.0.0.1:9090 1\n' > /usr/local/bin/promtool \
 && chmod +x /usr/local/bin/promtool
USER nobody
VOLUME /prometheus
ENTRYPOINT ["prometheus"]
"""

#: A range that holds several scrapes of 15 s.
RATE_INTERVAL = "2m"

#: Tokens that may wait before jobs are refused: a few of the lab's jobs.
MOST_TOKENS = 60_000

#: Every query of the boards has data well within this, in seconds: rates need some scrapes.
DATA_S = 900

PULL_S = 120


class Prometheus:
    """The running Prometheus of a project."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def values(self, query: str) -> list[Any]:
        """Return what a query finds now."""
        asked = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"{self._url}/query?{asked}", timeout=30) as reply:
            found: list[Any] = json.load(reply)["data"]["result"]
            return found

    def without_data(self, queries: Iterable[str]) -> list[str]:
        """Return the queries that had no data at any time; NaN, as of a quantile of nothing, is none."""
        return [query for query in queries if not self.values(f"count_over_time((({query}) >= 0)[1h:15s])")]


def can_pull(project: Project, service: str) -> bool:
    """Return whether the image of a service can be had."""
    argv = ["docker", "compose", "pull", "--quiet", service]
    try:
        done = subprocess.run(argv, cwd=project.folder, env=project.environment, capture_output=True, timeout=PULL_S)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def build_stand_in(project: Project) -> None:
    argv = ["docker", "build", "--quiet", "--tag", STAND_IN, "-"]
    done = subprocess.run(argv, input=DOCKERFILE, capture_output=True, text=True, env=project.environment)
    if done.returncode:
        raise SystemExit(f"the stand-in for Prometheus cannot be built:\n{done.stderr}")
    project.environment["PROMETHEUS_IMAGE"] = STAND_IN


class Receiver(BaseHTTPRequestHandler):
    """Takes webhooks; every fifth is to be sent again."""

    taken = itertools.count()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(503 if next(self.taken) % 5 == 4 else 204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@contextmanager
def receiver(project: Project) -> Iterator[str]:
    """Run a receiver on this machine; yield its address in the project's network."""
    [network] = json.loads(project.run("docker", "network", "inspect", f"{project.name}_default"))
    server = ThreadingHTTPServer(("0.0.0.0", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{network['IPAM']['Config'][0]['Gateway']}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def keep_asking(project: Project, webhook: str, over: threading.Event) -> None:
    """Ask jobs of every priority, with items that fail and webhooks, until it is over; some are refused."""
    items = [{"question": question, "context": context} for question, context in PASSAGES.values()]
    items += [{"question": "why " * 900, "context": "Because."}]
    while not over.is_set():
        for priority, times, prefer in (("low", 25, "wait=0"), ("normal", 5, "wait=0"), ("high", 5, "wait=20")):
            body = {"items": items * times, "priority": priority, "webhook": {"url": webhook}}
            request = urllib.request.Request(
                f"{project.url}/v1/jobs",
                json.dumps(body).encode(),
                {"content-type": "application/json", "prefer": prefer},
            )
            try:
                urllib.request.urlopen(request, timeout=60).close()
            except urllib.error.HTTPError as error:
                if error.code != HTTPStatus.TOO_MANY_REQUESTS:
                    raise
                over.wait(1)


def panel_queries() -> list[str]:
    """Return every query of the boards that a service on CPUs answers, with Grafana's variables filled in."""
    queries = [query for board in boards.ALL for panel in board.panels() for query, _ in panel.queries]
    filled = [query.replace("$__rate_interval", RATE_INTERVAL) for query in queries]
    return [query for query in filled if not metrics_in(query) & (OF_DEVICES | OF_ACCIDENTS)]


def show_monitoring(
    project: Project,
    say: Callable[[str], None],
    show: Callable[[str, bool], None],
    wait_for: Callable[[str, Callable[[], bool]], None],
) -> None:
    """Start Prometheus and Grafana, keep the service at work, and wait until every query of the boards has data."""
    project.environment["COMPOSE_FILE"] = "docker-compose.yml:deploy/monitoring/compose.yml"
    has_grafana = can_pull(project, "grafana")
    if not can_pull(project, "prometheus"):
        build_stand_in(project)
        say("prom/prometheus cannot be had here: Debian's Prometheus stands in for it")
    if not has_grafana:
        say("NOT RUN: grafana/grafana cannot be had here, and no package index has Grafana")
    services = project.compose("config", "--services").split()
    if not has_grafana:
        services.remove("grafana")
    # The receiver of webhooks is this machine, in whose network the containers are.
    project.configure(
        webhook_secret="whsec_" + "bGFiLWxhYi1sYWItbGFiLWxhYi1sYWI=",
        webhook_allowed_networks="172.16.0.0/12,192.168.0.0/16,10.0.0.0/8",
        max_outstanding_tokens=str(MOST_TOKENS),
    )
    # All in one go: an API is not ready while new workers load their model.
    project.compose("up", "--detach", "--wait", *services)
    # A limit is one of the figures, and nothing comes near this one.
    project.compose("exec", "-T", "redis", "redis-cli", "config", "set", "maxmemory", "8gb")
    show("`docker compose up -d --wait` with it", True)
    prometheus, over = Prometheus(project.ports["PROMETHEUS_PORT"]), threading.Event()
    wait_for("Prometheus scrapes the API", lambda: bool(prometheus.values('up{job="corelane"} == 1')))
    missing = panel_queries()
    count, deadline = len(missing), time.monotonic() + DATA_S
    with receiver(project) as webhook:
        asking = threading.Thread(target=keep_asking, args=(project, webhook, over), daemon=True)
        asking.start()
        while missing and asking.is_alive() and time.monotonic() < deadline:
            time.sleep(5)
            missing = prometheus.without_data(missing)
        over.set()
        asking.join(120)
    for query in missing:
        say(f"no data: {query}")
    show(f"every query of the boards has data: {count} of {count}", not missing)
    if has_grafana:
        grafana = f"http://127.0.0.1:{project.ports['GRAFANA_PORT']}"
        with urllib.request.urlopen(f"{grafana}/api/search?type=dash-db", timeout=30) as reply:
            show("Grafana has both boards", len(json.load(reply)) == len(boards.ALL))
        body = {"queries": [{"refId": "A", "datasource": {"type": "prometheus"}, "expr": 'up{job="corelane"}'}]}
        request = urllib.request.Request(
            f"{grafana}/api/ds/query", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            frames = json.load(reply)["results"]["A"]["frames"]
        show("Grafana shows data", bool(frames))
