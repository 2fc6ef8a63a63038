"""The trip of one question through our own files: submitted, answered, its webhook posted. ``make trip`` prints it.

Each part runs in this process on a real Redis, warmed up by the same question before: the app without its socket, the
drain of a core with the tiny model, a round of the webhook sender. The numbers are limits: a change that needs another
file has to say why.
"""

import base64
import json
import sys
from collections.abc import Iterator
from functools import reduce
from ipaddress import ip_network
from itertools import count

import pytest
import redis
from fastapi.testclient import TestClient
from pydantic import SecretStr

from api.app import create_app
from corelane.artifacts.manifest import Artifact
from corelane.domain.dispatch import Core
from corelane.log import Outage, get_logger
from corelane.settings import Settings
from tests.integration.conftest import wait_for
from tests.receivers import receiver
from tests.trip import Tracer, Trip
from workers.core.drain import drain
from workers.core.process import CoreProcess
from workers.loops.roles import sending

JSON = {"content-type": "application/json"}

#: Most files that each part may enter, and all parts together. What is seen of the service costs six: requests and
#: batches are recorded (corelane/metrics/recorder.py), the edge knows the console's paths, the drain tells core's own
#: observers (workers/core/observer.py, measures.py), and a final job says where its time went
#: (corelane/domain/timing.py). Observers that a plugin may bring, as of what is spent on each job, are not counted.
#: A line of the log is written by our own code (corelane/log.py). The layer of short ways, the digest of a question
#: (corelane/domain/reuse.py) and the fields of a job's hash cost a file each, and so do the fragments of documents that
#: a core reads for others (workers/core/fragments.py), and what is asked of all that is pending. What passes take, by
#: which windows share one, is a matter of its own beside whose turn it is (corelane/engine/passes.py). What is looked
#: at of a body before it is validated stands with the models of requests (corelane/domain/wire.py), and a passage
#: belongs to its owner (corelane/engine/task.py). A request's own forms stand beside those of the job that it makes
#: (corelane/domain/job_requests.py). Items of a claim are read in a file of their own
#: (corelane/store/claimed_items.py).
LIMITS = {"submit": 19, "drain": 24, "webhook": 12}
ALL = 45

#: How often a trip beside other work is traced: what that work enters is not entered every time.
TIMES = 5


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
        "linger_s": 0.0,
        "reuse": True,
        "batch_wait_s": 0.0,
        "lease_s": 60.0,
        "webhook_secret": SecretStr("whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()),
        "webhook_allowed_networks": (ip_network("127.0.0.0/8"),),
    }
    return settings.model_copy(update=changes)


def body(url: str, number: int) -> bytes:
    """Return a question that differs from those before it: an equal one would take the answer of the last."""
    item = {"question": f"Who wrote the notes, in {number}?", "context": "Ada Lovelace wrote the notes in 1843."}
    return json.dumps({"items": [item], "webhook": {"url": url}}).encode()


@pytest.mark.timeout(120)
def test_trip_of_one_question(world: Settings, raw: redis.Redis, bell: str, tracer: Tracer) -> None:
    trips = trace(world, raw, bell, tracer)
    for name, trip in trips.items():
        sys.stdout.write(f"\n{name}: {len(trip.files)} files\n{trip}\n")
    all_files = {file for trip in trips.values() for file in trip.files}
    sys.stdout.write(f"\n{len(all_files)} different files\n")
    assert {name: len(trip.files) for name, trip in trips.items() if len(trip.files) > LIMITS[name]} == {}
    assert len(all_files) <= ALL
    assert {name: trip.turns for name, trip in trips.items() if trip.turns} == {}


def trace(settings: Settings, raw: redis.Redis, bell: str, tracer: Tracer) -> dict[str, Trip]:
    """Trace the second question through each part; the first one warms it up."""
    core = CoreProcess(settings, Core("test", 0), bell)
    core.start(lambda: False)
    numbers = count()

    def answer() -> None:
        drain(core, lambda: False)

    def is_served() -> bool:
        answer()
        return bool(core.versions)

    def submit(api: TestClient) -> None:
        api.post("/v1/jobs", content=body(hook.url, next(numbers)), headers=JSON).raise_for_status()

    def trip_of(api: TestClient) -> Trip:
        with tracer.trip(here=False) as submitted:
            submit(api)
        return submitted

    def deliver(wanted: int) -> Trip:
        """Answer a question, and trace what follows until the store knows of so many deliveries."""
        with TestClient(create_app(settings)) as api:
            submit(api)
        with tracer.trip(here=False) as posted:
            answer()
            wait_for(lambda: raw.hget("cl:posted", "delivered") == str(wanted))
        return posted

    wait_for(is_served)
    with receiver() as hook:
        with TestClient(create_app(settings)) as api:
            submit(api)
            submitted = [trip_of(api) for _ in range(TIMES)]
            answer()
            submit(api)
            with tracer.trip(here=True) as answered:
                answer()
        sender = sending(settings, Outage(get_logger(__name__), "store"))
        sender.start()
        before = TIMES + 2
        wait_for(lambda: raw.hget("cl:posted", "delivered") == str(before))
        posted = [deliver(before + number) for number in range(1, TIMES + 1)]
        sender.ask_to_stop()
        sender.join(60)
    core.close()
    return {"submit": reduce(Trip.only_with, submitted), "drain": answered, "webhook": reduce(Trip.only_with, posted)}
