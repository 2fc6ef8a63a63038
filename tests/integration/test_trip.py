"""The trip of one question through our own code, over a real socket with a key and a wait. ``make trip`` prints it.

The API serves in a thread of this process on a real Redis, the drain of a core with the tiny model runs in another, the
webhook sender in its own; all are warmed up by the same question before. The numbers are limits: a change that needs
more lines to be read has to say why.
"""

import base64
import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from ipaddress import ip_network

import httpx2
import pytest
import redis
from pydantic import SecretStr

from corelane.artifacts.manifest import Artifact
from corelane.domain.api_keys import Scope
from corelane.domain.dispatch import Core
from corelane.log import Outage, get_logger
from corelane.settings import Settings
from corelane.store.api_keys import ApiKeyStore
from corelane.store.link.blocking import Link
from tests.api.conftest import served
from tests.tools.receivers import receiver
from tests.tools.waiting import eventually
from tests.trip import Tracer, Trip
from workers.core.drain import drain
from workers.core.process import CoreProcess
from workers.roles import sending

#: Most lines of the functions that the parts enter, and most files of all parts together. What a task is (its items,
#: options, rows and estimates) stands in eight files that a question enters since there may be several.
LINES, FILES = 3790, 65

#: How often the trip is traced: what loops beside it enter is not entered every time.
TIMES = 6


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    tracer = Tracer()
    yield tracer
    tracer.close()


@pytest.fixture
def world(settings: Settings, raw: redis.Redis, tiny_artifact: Artifact) -> Settings:
    """Return settings of a service whose one core serves the tiny model, and whose webhooks may go to loopback."""
    root = next(parent for parent in tiny_artifact.path.parents if parent.name == "artifacts")
    changes = {
        "artifacts_dir": root,
        "model": tiny_artifact.manifest.name,
        "auth": "required",
        "linger_s": 0.0,
        "lease_s": 60.0,
        "webhook_secret": SecretStr("whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()),
        "webhook_allowed_networks": (ip_network("127.0.0.0/8"),),
    }
    return settings.model_copy(update=changes)


@pytest.mark.timeout(120)
def test_trip_of_one_question(world: Settings, raw: redis.Redis, bell: str, tracer: Tracer) -> None:
    trips = trace(world, raw, bell, tracer)
    for name, trip in trips.items():
        sys.stdout.write(f"\n{name}: {len(trip.files)} files, {trip.lines} lines of functions\n{trip}\n")
    files = {file for trip in trips.values() for file in trip.files}
    lines = sum(trip.lines for trip in trips.values())
    sys.stdout.write(f"\n{len(files)} different files, {lines} lines of functions\n")
    assert lines <= LINES
    assert len(files) <= FILES
    assert {name: trip.turns for name, trip in trips.items() if trip.turns} == {}


def trace(settings: Settings, raw: redis.Redis, bell: str, tracer: Tracer) -> dict[str, Trip]:
    """Trace the same kind of question several times, and return what each thread entered every time."""
    core = CoreProcess(settings, Core("test", 0), bell)
    over = threading.Event()

    def answer() -> None:
        while not over.is_set():
            drain(core, over.is_set)

    _, secret = ApiKeyStore(Link(settings.redis_url)).create("ada", Scope)
    sender = sending(settings, Outage(get_logger(__name__), "store"))
    drainer = threading.Thread(target=answer, name="core", daemon=True)
    with receiver() as hook, served(settings) as url, httpx2.Client(base_url=url, timeout=60) as http:

        def ask(number: int) -> None:
            """Ask a question that differs from those before it: an equal one would take the answer of the last."""
            item = {"question": f"Who wrote the notes, in {number}?", "context": "Ada Lovelace wrote them in 1843."}
            headers = {"content-type": "application/json", "prefer": "wait=30", "authorization": f"Bearer {secret}"}
            body = json.dumps({"items": [item], "webhook": {"url": hook.url}})
            with ThreadPoolExecutor(1, "caller") as pool:
                job = pool.submit(http.post, "/v1/jobs", content=body, headers=headers).result().json()
            assert job["status"] == "succeeded", job
            eventually(lambda: raw.hget("cl:posted", "delivered") == str(number))

        # Only now that the app is made: FastAPI and torch both change the filters of warnings meanwhile.
        core.start(lambda: False)
        drainer.start()
        sender.start()
        eventually(lambda: bool(core.versions))
        ask(1)
        found = list[dict[str, Trip]]()
        for number in range(2, 2 + TIMES):
            with tracer.trips() as trips:
                ask(number)
            found.append(trips)
        over.set()
        drainer.join(60)
        sender.ask_to_stop()
        sender.join(60)
    core.close()
    names = ("api", "core", "deliveries")
    return {name: reduce(Trip.only_with, (trips[name] for trips in found)) for name in names}
