"""From what a calibrating load showed to a profile of one core. Pure.

Three phases are seen. In ``lone`` one question is under way at a time: batches of one row, on a service without other
work. In ``packed`` one job of several questions is, small enough for one core: batches of several rows, on one core at
a time. In ``busy`` lone questions keep all cores at work: what the cores, the API and Redis take from each other.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from corelane.domain.timing import JobTiming
from corelane.engine.batching import smallest_fit
from corelane.engine.buckets import Bucket, parse_buckets, tallest
from corelane.errors import InvalidInput
from corelane.metrics import definitions as m
from corelane.metrics.definitions import Metric
from corelane.plugins.lab.planning.profile import Contention, Limits, Overhead, Profile, ShapeTime, fill_ladder

#: Samples by name of the exposition and by labels, as the service's ``/metrics`` has them.
Samples = Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]

#: Fewer batches of a shape than this say too little of its time by themselves.
LEAST_BATCHES = 3

#: Mean rows of two phases that differ by less than this are one point, not two.
LEAST_ROWS_APART = 0.5

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
        """Return the seconds before its lane and after its commit."""
        return max(0.0, self.latency_s - self.timing.wall_s) + self.timing.submit_s


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

    def total(self, metric: Metric, version: str, part: str = "") -> float:
        """Return the same over all shapes."""
        return sum(self.added(metric, version, part).values())

    def points(self, version: str) -> dict[Bucket, "Point"]:
        """Return what was measured of each shape."""
        batches, windows, seconds = (
            self.added(metric, version) for metric in (m.BATCHES, m.BATCH_WINDOWS, m.BATCH_SECONDS)
        )
        return {
            parse_buckets(shape)[0]: Point(count, windows.get(shape, 0.0), seconds.get(shape, 0.0))
            for shape, count in batches.items()
            if count > 0 and seconds.get(shape, 0.0) > 0
        }


@dataclass(frozen=True, slots=True)
class Point:
    """Batches of one shape: how many, their windows, and their seconds in all."""

    batches: float
    windows: float
    seconds: float

    @property
    def rows(self) -> float:
        """Return the mean rows of a batch."""
        return self.windows / self.batches

    @property
    def mean_s(self) -> float:
        """Return the mean seconds of a batch."""
        return self.seconds / self.batches


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
    limits: Limits = field(default_factory=Limits)

    @property
    def overlaps(self) -> bool:
        """Return whether batches leave the CPU free while they run."""
        return self.target not in ("cpu", "openvino")


def fit(subject: Subject, lone: SeenPhase, packed: SeenPhase, busy: SeenPhase, *, asleep_s: float = 0.0) -> Profile:
    """Return the profile; raise InvalidInput where too little was measured.

    ``asleep_s`` is the time that a question waited for a core that slept.
    """
    version = subject.version
    if not (lone.requests and busy.requests):
        raise InvalidInput("no question of the calibrating load was answered; the service's log says why")
    quiet = (lone, packed)
    tokens = sum(phase.total(m.TOKENS, version) for phase in quiet)
    windows = sum(phase.total(m.BATCH_WINDOWS, version) for phase in quiet)
    if not (tokens and windows):
        raise InvalidInput("the service's metrics did not move; its release must count seconds of batches by shape")
    estimated = sum(phase.estimated_tokens for phase in quiet)
    ladder = [parse_buckets(text)[0] for text in subject.buckets]
    is_flexible = len(tallest(ladder)) == len(ladder) and _is_flexible(quiet, version)
    measured = _shape_times([phase.points(version) for phase in quiet], is_flexible=is_flexible)
    parts = [request.timing for request in lone.requests]
    profile = Profile(
        version=version,
        target=subject.target,
        dtype=subject.dtype,
        instance=subject.instance,
        machine=subject.machine,
        measured_at=subject.measured_at,
        flexible_rows=is_flexible,
        overlaps=subject.overlaps,
        shapes=fill_ladder(measured, ladder),
        tokenize_token_s=sum(phase.total(m.TOKENIZE_S, version, "_sum") for phase in quiet) / tokens,
        merge_row_s=sum(phase.total(m.MERGE_S, version, "_sum") for phase in quiet) / windows,
        exchange_s=statistics.median(part.commit_s + part.other_s for part in parts),
        exchange_item_s=_per_item(lone, packed),
        wake_s=statistics.median(part.wait_s for part in parts),
        asleep_s=max(asleep_s, statistics.median(part.wait_s for part in parts)),
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
        stretch=max(1.0, _stretch(profile, busy.points(version))),
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


def _is_flexible(phases: Iterable[SeenPhase], version: str) -> bool:
    """Return whether batches have only the rows they need: then no row is all padding."""
    read = needed = 0.0
    for phase in phases:
        read += phase.total(m.TOKENS, version) + phase.total(m.PADDING_TOKENS, version)
        needed += sum(bucket.length * point.windows for bucket, point in phase.points(version).items())
    return read <= 1.01 * needed


def _shape_times(phases: Sequence[Mapping[Bucket, Point]], *, is_flexible: bool) -> dict[Bucket, ShapeTime]:
    """Return the times of the shapes that were measured well enough; a line through the points where rows differ."""
    common = _common_share(phases)
    found = {}
    for bucket in sorted({bucket for points in phases for bucket in points}):
        points = [points[bucket] for points in phases if bucket in points]
        batches = sum(point.batches for point in points)
        if batches < LEAST_BATCHES:
            continue
        base_s, row_s = _line(points, common) if is_flexible else (_mean(points), 0.0)
        found[bucket] = ShapeTime(
            rows=bucket.rows, length=bucket.length, base_s=base_s, row_s=row_s, batches=round(batches)
        )
    return found


def _mean(points: Sequence[Point]) -> float:
    return sum(point.seconds for point in points) / sum(point.batches for point in points)


def _line(points: Sequence[Point], common: float) -> tuple[float, float]:
    """Return base and row seconds of a line through the points; ``common`` is the base's share of a row's time, where
    the points cannot tell.
    """
    few, many = min(points, key=lambda point: point.rows), max(points, key=lambda point: point.rows)
    if many.rows - few.rows >= LEAST_ROWS_APART and min(few.batches, many.batches) >= LEAST_BATCHES:
        row_s = (many.mean_s - few.mean_s) / (many.rows - few.rows)
        if 0 < row_s <= few.mean_s / few.rows:
            return few.mean_s - row_s * few.rows, row_s
    batches, windows, seconds = (sum(getattr(each, name) for each in points) for name in Point.__dataclass_fields__)
    row_s = seconds / (windows + common * batches)
    return common * row_s, row_s


def _common_share(phases: Sequence[Mapping[Bucket, Point]]) -> float:
    """Return the base of a batch over the time of one row, as the shapes with two points have it in the middle."""
    shares = []
    for bucket in sorted(set.intersection(*(set(points) for points in phases))):
        few, *_, many = sorted((points[bucket] for points in phases), key=lambda point: point.rows)
        if many.rows - few.rows >= LEAST_ROWS_APART and min(few.batches, many.batches) >= LEAST_BATCHES:
            row_s = (many.mean_s - few.mean_s) / (many.rows - few.rows)
            if row_s > 0:
                shares.append(min(5.0, max(0.0, few.mean_s / row_s - few.rows)))
    return statistics.median(shares) if shares else 0.0


def _per_item(lone: SeenPhase, packed: SeenPhase) -> float:
    """Return what each further item adds to a trip."""
    if not packed.requests:
        return 0.0
    items = statistics.fmean(request.items for request in packed.requests)
    many_s = statistics.median(request.timing.commit_s for request in packed.requests)
    one_s = statistics.median(request.timing.commit_s for request in lone.requests)
    return max(0.0, many_s - one_s) / (items - 1) if items > 1 else 0.0


def _stretch(profile: Profile, points: Mapping[Bucket, Point]) -> float:
    """Return how much longer batches took than they do on a core that is not disturbed."""
    alone_s = 0.0
    for shape in profile.shapes:
        point = points.get(Bucket(length=shape.length, rows=shape.rows))
        if point is not None:
            alone_s += point.batches * shape.base_s + point.windows * shape.row_s
    taken_s = sum(point.seconds for point in points.values())
    return taken_s / alone_s if alone_s else 1.0


def _noise(profile: Profile, requests: Sequence[SeenRequest]) -> float:
    """Return how much the time of a batch of one row varies within its shape."""
    by_shape: dict[Bucket, list[float]] = {}
    longest = profile.longest()
    for request in requests:
        length = math.ceil(profile.tokens_ratio * request.tokens)
        if length <= longest:
            by_shape.setdefault(smallest_fit(length, profile.ladder), []).append(request.timing.compute_s)
    ratios: list[float] = []
    for seconds in by_shape.values():
        mean_s = statistics.fmean(seconds)
        if len(seconds) >= LEAST_BATCHES and mean_s > 0:
            ratios += [min(OUTLIER, each / mean_s) for each in seconds]
    return statistics.pstdev(ratios) if len(ratios) > 1 else 0.0
