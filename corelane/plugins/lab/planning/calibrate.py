"""Take a profile of the running service: a calibrating load of three phases, between readings of its metrics.

The phases are those of ``planning.fit``. Processes tell what they measured about once a second, so a reading is taken
only after that.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from corelane.domain.dispatch import WINDOW_TOKENS
from corelane.errors import InvalidInput, NotReady
from corelane.metrics.definitions import BATCH_WINDOWS
from corelane.plugins.lab.figures import Measurement
from corelane.plugins.lab.generator import run_load
from corelane.plugins.lab.load import RunPlan
from corelane.plugins.lab.planning.fit import Samples, SeenPhase, SeenRequest, Subject, fit
from corelane.plugins.lab.planning.profile import BatchLimits, Profile
from corelane.plugins.lab.schema import Load, Request
from corelane.plugins.lab.senders import Target
from corelane.plugins.lab.session import probe
from corelane.plugins.lab.split import FLUSHED_S, Snapshot, snapshot

if TYPE_CHECKING:
    from corelane.client import Client
    from corelane.plugins.lab.workload import Questions

#: Requests of a phase whose jobs are asked where their time went.
TIMED = 300

#: A job of the second phase has at most this share of a slice's estimated tokens, so that one core claims it.
PACKED = 0.7

#: Lone questions under way for each core in the third phase.
BUSY_A_CORE = 4

#: Most items of a packed job: a batch of many rows is asked for, not a long one.
MOST_PACKED = 32

#: Longest wait for processes to tell what they measured, in seconds: a busy machine takes its time.
SETTLED_S = 20.0

#: Time between two readings meanwhile, in seconds.
POLL_S = 0.25

#: The last question of the first phase has this long, in seconds.
LAST_S = 2.0

#: What a step is called, and how long it takes in seconds.
OnStep = Callable[[str, float], object]


def take_profile(
    client: "Client",
    target: Target,
    questions: "Questions",
    *,
    seconds: float = 30.0,
    limits: BatchLimits | None = None,
    cpus: int | None = None,
    instance: str | None = None,
    machine: str = "",
    on_step: OnStep = lambda _name, _seconds: None,
) -> Profile:
    """Load the service for about so many seconds, and return the profile of one core; nothing else should ask it.

    Raises NotReady if no core holds the model, InvalidInput if too little was measured.
    """
    limits = limits or BatchLimits()
    subject = _subject(client, target, limits, cpus=cpus, instance=instance, machine=machine)
    packed = max(2, min(MOST_PACKED, int(PACKED * limits.slice_tokens / questions.mean_tokens)))
    lone = Load(kind="poisson", rate_per_s=probe(target, questions, RunPlan(Load(kind="closed")), 1).rate_per_s)
    phases = []
    for name, load, items in (
        ("one question at a time", lone, 1),
        (f"one job of {packed} at a time", Load(kind="closed", concurrency=1), packed),
        ("all cores at work", Load(kind="closed", concurrency=BUSY_A_CORE * subject.cores), 1),
    ):
        on_step(name, seconds / 3)
        phases.append(_phase(client, target, questions, load, items, seconds / 3))
    return fit(subject, *phases)


def _phase(
    client: "Client", target: Target, questions: "Questions", load: Load, items: int, seconds: float
) -> SeenPhase:
    plan = RunPlan(
        load=load,
        way="question" if items == 1 else "job",
        items_per_job=items,
        warmup_s=0.0,
        duration_s=seconds,
        tail_s=0.0 if load.kind == "closed" else LAST_S,
        processes=1,
    )
    before = snapshot(target.url, target.api_key)
    measured = run_load(target, questions, plan)
    answered = sum(each.items for each in measured.requests if each.outcome == "ok")
    after = _settled(target, before, answered, are_long=max(questions.tokens) > WINDOW_TOKENS)
    return _seen(client, measured, before.samples, after.samples)


def _settled(target: Target, before: Snapshot, answered: int, *, are_long: bool) -> Snapshot:
    """Return a reading in which all windows of so many answered items are counted: each item has one at least."""
    deadline = time.monotonic() + SETTLED_S
    seen = snapshot(target.url, target.api_key)
    while _windows(seen) < _windows(before) + answered and time.monotonic() < deadline:
        time.sleep(POLL_S)
        seen = snapshot(target.url, target.api_key)
    if are_long:
        time.sleep(FLUSHED_S)
        seen = snapshot(target.url, target.api_key)
    return seen


def _windows(reading: Snapshot) -> float:
    return sum(reading.by_label(BATCH_WINDOWS.name, "version").values())


def _seen(client: "Client", measured: Measurement, before: Samples, after: Samples) -> SeenPhase:
    done = [each for each in measured.requests if each.outcome == "ok" and each.ended_s is not None]
    began_s, ended_s = measured.window_s
    whole = [each for each in done if each.phase == "measured"]
    step = max(1, len(whole) // TIMED)
    return SeenPhase(
        requests=[seen for each in whole[::step] if (seen := _timed(client, each)) is not None],
        requests_per_s=len(whole) / max(ended_s - began_s, 1e-9),
        estimated_tokens=sum(each.tokens for each in done),
        before=before,
        after=after,
    )


def _timed(client: "Client", request: Request) -> SeenRequest | None:
    """Return a request with where its job's time went; None where that is not known."""
    if request.job is None or request.sent_s is None or request.ended_s is None:
        return None
    timing = client.get(request.job).timing
    if timing is None:
        return None
    return SeenRequest(request.ended_s - request.sent_s, request.items, request.tokens, timing)


def _subject(client: "Client", target: Target, limits: BatchLimits, *, cpus: int | None, **rest: Any) -> Subject:
    model = find_model(client.models(), target.model)
    cores = [each for each in client.cores() if model["id"] in each["versions"]]
    if not cores:
        raise NotReady(f"no core holds {model['id']}: {model['waiting_for'] or '`corelane cores` says more'}")
    memory = [each["memory_bytes"] for each in cores if each["memory_bytes"]]
    return Subject(
        version=model["id"],
        buckets=model["buckets"],
        cores=len(cores),
        target=model["target"],
        dtype=model["dtype"],
        cpus=cpus or (len(os.sched_getaffinity(0)) if is_here(target.url) else None),
        worker_bytes=max(memory, default=None),
        device_bytes=model["bytes"] or None,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        limits=limits,
        **rest,
    )


def find_model(models: Sequence[Mapping[str, Any]], wanted: str) -> Mapping[str, Any]:
    """Return the version that a version, name or alias means; raise InvalidInput if there is none."""
    for model in models:
        if wanted == model["id"] or wanted in model["aliases"]:
            return model
    named = [model for model in models if model["name"] == wanted]
    if not named:
        names = ", ".join(model["id"] for model in models) or "none"
        raise InvalidInput(f"{wanted!r} is no model of this service; it has {names}")
    return named[-1]


def is_here(url: str) -> bool:
    """Return whether a service runs on this machine, by its address."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
