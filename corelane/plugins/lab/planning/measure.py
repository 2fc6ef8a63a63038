"""Measure a profile of the running service, in three phases of load between readings of its metrics.

In ``lone`` one item is in flight at a time, which gives batches of one row without other work. In ``packed`` one
job of several items is in flight, small enough for one core, which gives batches of several rows. In ``busy``
single items keep all cores at work, which shows how much the cores, the API and Redis slow each other.
"""

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from corelane.domain.dispatch import WINDOW_TOKENS
from corelane.domain.timing import JobTiming
from corelane.engine.buckets import Bucket, parse_buckets, tallest
from corelane.errors import InvalidInput, NotReady
from corelane.metrics import definitions as m
from corelane.plugins.lab.generator import run_load
from corelane.plugins.lab.load import RunPlan
from corelane.plugins.lab.machine import find_model
from corelane.plugins.lab.planning.profile import BatchLimits, Contention, Overhead, Profile, ShapeTime, variation
from corelane.plugins.lab.schema import Load, Request
from corelane.plugins.lab.senders import Target
from corelane.plugins.lab.session import probe
from corelane.plugins.lab.split import FLUSHED_S, Snapshot, added, snapshot

if TYPE_CHECKING:
    from corelane.client import Client
    from corelane.plugins.lab.workload import Workload

#: Requests of a phase for whose jobs the timing is read.
TIMED = 300

#: A job of the second phase has at most this share of a slice's estimated tokens, so that one core claims it. It also
#: has at most ``MOST_PACKED`` items: a batch of many rows is wanted, not a long job.
PACKED, MOST_PACKED = 0.7, 32

#: Items in flight for each core in the third phase.
BUSY_A_CORE = 4

#: Longest wait until all processes have reported, and the time between two readings while waiting, in seconds.
SETTLED_S, POLL_S = 20.0, 0.25

#: How long the last item of the first phase may take, in seconds.
LAST_S = 2.0

#: Number of quantiles of the overhead that are stored.
QUANTILES = 20

#: A batch that took longer than this multiple of the mean was delayed by something else. It counts as the multiple.
OUTLIER = 3.0

#: The name of a step, and how long it takes in seconds.
OnStep = Callable[[str, float], object]


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """One request of a phase: the latency for its caller, its items, their estimated tokens, and its job's timing."""

    latency_s: float
    items: int
    tokens: int
    timing: JobTiming

    @property
    def outside_s(self) -> float:
        """The seconds until the request is in its lane, and from its commit to the caller."""
        return max(0.0, self.latency_s - self.timing.wall_s) + self.timing.submit_s


@dataclass(frozen=True, slots=True)
class ShapeTotals:
    """Batches of one shape: their number, their windows, and their total seconds."""

    bucket: Bucket
    batches: float
    windows: float
    seconds: float


@dataclass(frozen=True, slots=True)
class SeenPhase:
    """A phase: some of its requests, the totals of all, and the metrics before and after."""

    requests: Sequence[SeenRequest]
    requests_per_s: float
    estimated_tokens: int
    before: Snapshot
    after: Snapshot

    def total(self, name: str) -> float:
        """Return the growth of a metric."""
        return sum(added(self.before, self.after, name, "shape").values())

    def shapes(self) -> list[ShapeTotals]:
        """Return the measurements of each shape."""
        batches, windows, seconds = (
            added(self.before, self.after, metric.name, "shape")
            for metric in (m.BATCHES, m.BATCH_WINDOWS, m.BATCH_SECONDS)
        )
        return [
            ShapeTotals(parse_buckets(shape)[0], count, windows.get(shape, 0.0), seconds.get(shape, 0.0))
            for shape, count in batches.items()
            if count > 0 and seconds.get(shape, 0.0) > 0
        ]


def take_profile(
    client: "Client",
    target: Target,
    workload: "Workload",
    *,
    seconds: float,
    limits: BatchLimits,
    cpus: int | None,
    instance: str | None,
    on_step: OnStep,
) -> Profile:
    """Load a service without other load, and return the profile of a core; raises NotReady or InvalidInput."""
    model = find_model(client.models(), target.model)
    cores = [each for each in client.cores() if model["id"] in each["versions"]]
    if not cores:
        raise NotReady(f"no core holds {model['id']}: {model['waiting_for'] or '`corelane cores` says more'}")
    packed = max(2, min(MOST_PACKED, int(PACKED * limits.slice_tokens / statistics.fmean(workload.tokens))))
    rate_per_s, _ = probe(target, workload, RunPlan(Load(kind="closed")), 1)
    lone = Load(kind="poisson", rate_per_s=rate_per_s)
    phases = []
    for name, load, items in (
        ("one item at a time", lone, 1),
        (f"one job of {packed} at a time", Load(kind="closed", concurrency=1), packed),
        ("all cores at work", Load(kind="closed", concurrency=BUSY_A_CORE * len(cores)), 1),
    ):
        on_step(name, seconds / 3)
        phases.append(_phase(client, target, workload, load, items, seconds / 3))
    about = {
        "version": model["id"],
        "target": model["target"],
        "dtype": model["dtype"],
        "instance": instance,
        "cpus": cpus or (len(os.sched_getaffinity(0)) if is_here(target.url) else None),
        "worker_bytes": max((each["memory_bytes"] for each in cores if each["memory_bytes"]), default=None),
        "device_bytes": model["bytes"] or None,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "limits": limits,
    }
    return fit(about, model["buckets"], len(cores), *phases)


def _phase(client: "Client", target: Target, workload: "Workload", load: Load, items: int, seconds: float) -> SeenPhase:
    plan = RunPlan(
        load=load,
        way="item" if items == 1 else "job",
        items_per_job=items,
        warmup_s=0.0,
        duration_s=seconds,
        tail_s=0.0 if load.kind == "closed" else LAST_S,
        processes=1,
    )
    before = snapshot(target.url, target.api_key)
    measured = run_load(target, workload, plan)
    done = [each for each in measured.requests if each.outcome == "ok" and each.ended_s is not None]
    answered = sum(each.items for each in done)
    after = _settled(target, before, answered, are_long=max(workload.tokens) > WINDOW_TOKENS)
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


def _settled(target: Target, before: Snapshot, answered: int, *, are_long: bool) -> Snapshot:
    """Return a reading that includes at least ``answered`` items, each with one window or more."""
    deadline = time.monotonic() + SETTLED_S
    seen = snapshot(target.url, target.api_key)
    while sum(added(before, seen, m.BATCH_WINDOWS.name, "").values()) < answered and time.monotonic() < deadline:
        time.sleep(POLL_S)
        seen = snapshot(target.url, target.api_key)
    if are_long:
        time.sleep(FLUSHED_S)
        seen = snapshot(target.url, target.api_key)
    return seen


def _timed(client: "Client", request: Request) -> SeenRequest | None:
    """Return a request with its job's timing; None if the timing is not known."""
    if request.job is None or request.sent_s is None or request.ended_s is None:
        return None
    timing = client.get(request.job).timing
    if timing is None:
        return None
    return SeenRequest(request.ended_s - request.sent_s, request.items, request.tokens, timing)


def is_here(url: str) -> bool:
    """Return whether a service runs on this machine, judged by its address."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def fit(
    about: Mapping[str, Any], buckets: Sequence[str], cores: int, lone: SeenPhase, packed: SeenPhase, busy: SeenPhase
) -> Profile:
    """Return the profile of these shapes, with the fields ``about``; raise InvalidInput for too little. Pure."""
    if not (lone.requests and busy.requests):
        raise InvalidInput("no item of the calibrating load was answered; the service's log says why")

    def total(name: str) -> float:
        return lone.total(name) + packed.total(name)

    tokens, windows = total(m.TOKENS.name), total(m.BATCH_WINDOWS.name)
    if not (tokens and windows):
        raise InvalidInput("the service's metrics did not move; its release must count seconds of batches by shape")
    seen = [*lone.shapes(), *packed.shapes()]
    ladder = sorted(parse_buckets(text)[0] for text in buckets)
    # If batches have only the rows they need, no row is all padding.
    needed = sum(each.bucket.length * each.windows for each in seen)
    is_flexible = len(tallest(ladder)) == len(ladder) and tokens + total(m.PADDING_TOKENS.name) <= 1.01 * needed
    timings = [request.timing for request in lone.requests]
    estimated = lone.estimated_tokens + packed.estimated_tokens
    profile = Profile(
        **about,
        flexible_rows=is_flexible,
        shapes=(_flexible_shapes if is_flexible else _fixed_shapes)(seen, ladder),
        tokenize_token_s=total(f"{m.TOKENIZE_S.name}_sum") / tokens,
        merge_row_s=total(f"{m.MERGE_S.name}_sum") / windows,
        exchange_s=statistics.median(part.commit_s + part.other_s for part in timings),
        exchange_item_s=_per_item(lone, packed),
        wake_s=statistics.median(part.wait_s for part in timings),
        tokens_ratio=tokens / estimated if estimated else 1.0,
        overhead=overhead_of(lone.requests),
    )
    contention = Contention(
        cores=cores,
        requests_per_s=busy.requests_per_s,
        stretch=max(1.0, _stretch(profile, busy.shapes())),
        overhead=overhead_of(busy.requests),
    )
    return profile.model_copy(update={"contention": contention, "noise": _noise(profile, lone.requests)})


def overhead_of(requests: Sequence[SeenRequest]) -> Overhead:
    """Return the seconds spent outside the core, and how they spread."""
    outside = sorted(request.outside_s for request in requests)
    front_s = statistics.fmean(request.timing.submit_s for request in requests)
    mean_s = statistics.fmean(outside)
    if not mean_s:
        return Overhead()
    places = [outside[int((n + 0.5) * len(outside) / QUANTILES)] for n in range(QUANTILES)]
    scale = QUANTILES / sum(places)
    return Overhead(front_s=front_s, reply_s=max(0.0, mean_s - front_s), spread=[scale * each for each in places])


def _flexible_shapes(seen: Sequence[ShapeTotals], ladder: Sequence[Bucket]) -> list[ShapeTime]:
    """Return shapes by a fit to all batches: a time for each batch, plus a time for each place (rows × length)."""
    import numpy as np
    from scipy.optimize import nnls

    weights = np.sqrt([each.batches for each in seen])
    places = np.array([each.bucket.length * each.windows / each.batches for each in seen])
    seconds = np.array([each.seconds / each.batches for each in seen])
    (base_s, place_s), _ = nnls(np.column_stack([weights, weights * places]), weights * seconds)
    return [
        ShapeTime(rows=each.rows, length=each.length, base_s=float(base_s), row_s=float(place_s) * each.length)
        for each in ladder
    ]


def _fixed_shapes(seen: Sequence[ShapeTotals], ladder: Sequence[Bucket]) -> list[ShapeTime]:
    """Return the mean time of each shape; a shape that was not seen has the time of the nearest one in size."""
    batches = {each.bucket: 0.0 for each in seen}
    seconds = dict(batches)
    for each in seen:
        batches[each.bucket] += each.batches
        seconds[each.bucket] += each.seconds
    found = []
    for bucket in ladder:
        near = bucket if bucket in batches else min(batches, key=lambda other: abs(other.places - bucket.places))
        base_s = seconds[near] / batches[near] * bucket.places / near.places
        found.append(ShapeTime(rows=bucket.rows, length=bucket.length, base_s=base_s, row_s=0))
    return found


def _per_item(lone: SeenPhase, packed: SeenPhase) -> float:
    """Return the time that each further item of a job adds to its commit."""
    if not packed.requests:
        return 0.0
    items = statistics.fmean(request.items for request in packed.requests)
    many_s, one_s = (
        statistics.median(request.timing.commit_s for request in phase.requests) for phase in (packed, lone)
    )
    return max(0.0, many_s - one_s) / (items - 1) if items > 1 else 0.0


def _stretch(profile: Profile, seen: Sequence[ShapeTotals]) -> float:
    """Return the seconds of these batches, divided by their seconds on an undisturbed core."""
    shapes = {Bucket(length=shape.length, rows=shape.rows): shape for shape in profile.shapes}
    alone_s = sum(
        each.batches * shapes[each.bucket].base_s + each.windows * shapes[each.bucket].row_s
        for each in seen
        if each.bucket in shapes
    )
    return sum(each.seconds for each in seen) / alone_s if alone_s else 1.0


def _noise(profile: Profile, requests: Sequence[SeenRequest]) -> float:
    """Return how much the time of a batch of one row varies around the time of its shape."""
    ratios = []
    for request in requests:
        length = math.ceil(profile.tokens_ratio * request.tokens)
        if length <= profile.longest and (batch_s := profile.batch_s(profile.length_of(length), 1)):
            ratios.append(min(OUTLIER, request.timing.compute_s / batch_s))
    return variation(ratios) if ratios else 0.0
