"""From what a calibrating load showed to a profile of one core. Pure.

Three phases are seen. In ``lone`` one question is under way at a time: batches of one row, on a service without other
work. In ``packed`` one job of several questions is, small enough for one core: batches of several rows, on one core at
a time. In ``busy`` lone questions keep all cores at work: what the cores, the API and Redis take from each other.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from corelane.domain.timing import JobTiming
from corelane.engine.buckets import Bucket, parse_buckets, tallest
from corelane.errors import InvalidInput
from corelane.metrics import definitions as m
from corelane.metrics.definitions import Metric
from corelane.plugins.lab.planning.profile import BatchLimits, Contention, Overhead, Profile, ShapeTime

#: Samples by name of the exposition and by labels, as the service's ``/metrics`` has them.
Samples = Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]

#: Places at which the spread of the overhead is kept.
QUANTILES = 20

#: A batch that took more than this many times its mean was held up by something else, and counts as this.
OUTLIER = 3.0


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """One request of a phase: its latency by the caller, its items, their estimated tokens, and its job's timing."""

    latency_s: float
    items: int
    tokens: int
    timing: JobTiming

    @property
    def outside_s(self) -> float:
        """The seconds before its lane and after its commit."""
        return max(0.0, self.latency_s - self.timing.wall_s) + self.timing.submit_s


@dataclass(frozen=True, slots=True)
class ShapeTotals:
    """Batches of one shape: how many, their windows, and their seconds in all."""

    batches: float
    windows: float
    seconds: float


@dataclass(frozen=True, slots=True)
class SeenPhase:
    """A phase of the calibrating load: some of its requests, what they all were, and the metrics before and after."""

    requests: Sequence[SeenRequest]
    requests_per_s: float
    estimated_tokens: int
    before: Samples
    after: Samples

    def added(self, metric: Metric, version: str, part: str = "") -> dict[str, float]:
        """Return what was added to a metric of a version, by shape; metrics without one have an empty name.

        ``part`` is `_sum` or `_count` of a histogram.
        """
        found: dict[str, float] = {}
        for sign, samples in ((-1, self.before), (1, self.after)):
            for labels, value in samples.get(metric.name + part, {}).items():
                named = dict(labels)
                if named.get("version", version) == version:
                    shape = named.get("shape", "")
                    found[shape] = found.get(shape, 0.0) + sign * value
        return found

    def points(self, version: str) -> dict[Bucket, ShapeTotals]:
        """Return what was measured of each shape."""
        batches, windows, seconds = (
            self.added(metric, version) for metric in (m.BATCHES, m.BATCH_WINDOWS, m.BATCH_SECONDS)
        )
        return {
            parse_buckets(shape)[0]: ShapeTotals(count, windows.get(shape, 0.0), seconds.get(shape, 0.0))
            for shape, count in batches.items()
            if count > 0 and seconds.get(shape, 0.0) > 0
        }


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: the version and its shapes, how its device works, and the host."""

    version: str
    buckets: Sequence[str]
    cores: int
    target: str = "cpu"
    dtype: str | None = None
    cpus: int | None = None
    instance: str | None = None
    machine: str = ""
    measured_at: str = ""
    worker_bytes: int | None = None
    device_bytes: int | None = None
    limits: BatchLimits = field(default_factory=BatchLimits)


def fit(subject: Subject, lone: SeenPhase, packed: SeenPhase, busy: SeenPhase) -> Profile:
    """Return the profile; raise InvalidInput where too little was measured."""
    if not (lone.requests and busy.requests):
        raise InvalidInput("no question of the calibrating load was answered; the service's log says why")
    quiet = (lone, packed)

    def total(metric: Metric, part: str = "") -> float:
        return sum(sum(phase.added(metric, subject.version, part).values()) for phase in quiet)

    tokens, windows = total(m.TOKENS), total(m.BATCH_WINDOWS)
    if not (tokens and windows):
        raise InvalidInput("the service's metrics did not move; its release must count seconds of batches by shape")
    points = [each for phase in quiet for each in phase.points(subject.version).items()]
    ladder = [parse_buckets(text)[0] for text in subject.buckets]
    # Where batches have only the rows they need, no row is all padding.
    needed = sum(bucket.length * point.windows for bucket, point in points)
    is_flexible = len(tallest(ladder)) == len(ladder) and tokens + total(m.PADDING_TOKENS) <= 1.01 * needed
    timings = [request.timing for request in lone.requests]
    estimated = sum(phase.estimated_tokens for phase in quiet)
    profile = Profile(
        version=subject.version,
        target=subject.target,
        dtype=subject.dtype,
        instance=subject.instance,
        machine=subject.machine,
        measured_at=subject.measured_at,
        flexible_rows=is_flexible,
        overlaps=subject.target not in ("cpu", "openvino"),
        shapes=(_flexible_shapes if is_flexible else _fixed_shapes)(points, ladder),
        tokenize_token_s=total(m.TOKENIZE_S, "_sum") / tokens,
        merge_row_s=total(m.MERGE_S, "_sum") / windows,
        exchange_s=statistics.median(part.commit_s + part.other_s for part in timings),
        exchange_item_s=_per_item(lone, packed),
        wake_s=statistics.median(part.wait_s for part in timings),
        tokens_ratio=tokens / estimated if estimated else 1.0,
        cpus=subject.cpus,
        overhead=overhead_of(lone.requests),
        limits=subject.limits,
        worker_bytes=subject.worker_bytes,
        device_bytes=subject.device_bytes,
    )
    contention = Contention(
        cores=subject.cores,
        requests_per_s=busy.requests_per_s,
        stretch=max(1.0, _stretch(profile, busy.points(subject.version))),
        overhead=overhead_of(busy.requests),
    )
    return profile.model_copy(update={"contention": contention, "noise": _noise(profile, lone.requests)})


def overhead_of(requests: Sequence[SeenRequest]) -> Overhead:
    """Return the seconds around the core, and how they spread."""
    outside = sorted(request.outside_s for request in requests)
    front_s = statistics.fmean(request.timing.submit_s for request in requests)
    mean_s = statistics.fmean(outside)
    if not mean_s:
        return Overhead()
    places = [outside[min(len(outside) - 1, int((n + 0.5) * len(outside) / QUANTILES))] for n in range(QUANTILES)]
    scale = QUANTILES / sum(places)
    return Overhead(front_s=front_s, reply_s=max(0.0, mean_s - front_s), spread=[scale * each for each in places])


def _flexible_shapes(points: Sequence[tuple[Bucket, ShapeTotals]], ladder: Sequence[Bucket]) -> list[ShapeTime]:
    """Return shapes by a line through all batches: a time for each batch, and one for each place of its rows."""
    import numpy as np
    from scipy.optimize import nnls

    weights = np.sqrt([point.batches for _, point in points])
    places = np.array([bucket.length * point.windows / point.batches for bucket, point in points])
    seconds = np.array([point.seconds / point.batches for _, point in points])
    (base_s, place_s), _ = nnls(np.column_stack([weights, weights * places]), weights * seconds)
    batches = _batches(points)
    return [
        ShapeTime(
            rows=bucket.rows,
            length=bucket.length,
            base_s=float(base_s),
            row_s=float(place_s) * bucket.length,
            batches=batches.get(bucket, 0),
        )
        for bucket in sorted(ladder)
    ]


def _fixed_shapes(points: Sequence[tuple[Bucket, ShapeTotals]], ladder: Sequence[Bucket]) -> list[ShapeTime]:
    """Return the mean time of each shape; of one that was not seen, that of the nearest by its size."""
    batches = _batches(points)
    means = {
        bucket: sum(point.seconds for shape, point in points if shape == bucket)
        / sum(point.batches for shape, point in points if shape == bucket)
        for bucket in batches
    }
    found = []
    for bucket in sorted(ladder):
        near = bucket if bucket in means else min(means, key=lambda each: abs(each.places - bucket.places))
        base_s = means[near] * bucket.places / near.places
        count = batches.get(bucket, 0)
        found.append(ShapeTime(rows=bucket.rows, length=bucket.length, base_s=base_s, row_s=0, batches=count))
    return found


def _batches(points: Sequence[tuple[Bucket, ShapeTotals]]) -> dict[Bucket, int]:
    found: dict[Bucket, int] = {}
    for bucket, point in points:
        found[bucket] = found.get(bucket, 0) + round(point.batches)
    return found


def _per_item(lone: SeenPhase, packed: SeenPhase) -> float:
    """Return what each further item adds to a trip."""
    if not packed.requests:
        return 0.0
    items = statistics.fmean(request.items for request in packed.requests)
    many_s = statistics.median(request.timing.commit_s for request in packed.requests)
    one_s = statistics.median(request.timing.commit_s for request in lone.requests)
    return max(0.0, many_s - one_s) / (items - 1) if items > 1 else 0.0


def _stretch(profile: Profile, points: Mapping[Bucket, ShapeTotals]) -> float:
    """Return how much longer batches took than they do on a core that is not disturbed."""
    seen = [(shape, points.get(Bucket(length=shape.length, rows=shape.rows))) for shape in profile.shapes]
    alone_s = sum(point.batches * shape.base_s + point.windows * shape.row_s for shape, point in seen if point)
    return sum(point.seconds for point in points.values()) / alone_s if alone_s else 1.0


def _noise(profile: Profile, requests: Sequence[SeenRequest]) -> float:
    """Return how much the time of a batch of one row varies beside what its shape takes."""
    ratios = []
    for request in requests:
        length = math.ceil(profile.tokens_ratio * request.tokens)
        if length <= profile.longest and (batch_s := profile.batch_s(profile.length_of(length), 1)):
            ratios.append(min(OUTLIER, request.timing.compute_s / batch_s))
    mean = statistics.fmean(ratios) if ratios else 0.0
    return statistics.pstdev(ratios) / mean if mean else 0.0
