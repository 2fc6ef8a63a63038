"""Where the time went inside the service: the difference of two readings of its ``/metrics``.

The store keeps the sums of all processes, so one reading shows the whole fleet. Processes add their measurements about
once a second, and cores report with each heartbeat. So a reading misses up to ``FLUSHED_S`` of work. Under load both
readings miss the same amount, and the difference is the work of the same length of time, shifted by a second. If no
load follows, they miss different amounts: ``SplitWatch.result`` then reads again when all work is counted.

A sum that is smaller than before restarted from 0, so all of it is new.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from corelane.client.transport import http_options
from corelane.client.wire import read_problem
from corelane.errors import ServiceError, ServiceUnreachable
from corelane.metrics import definitions as m
from corelane.metrics.definitions import Metric
from corelane.metrics.series import Histogram
from corelane.plugins.lab.schema import ServiceSplit, Spread

#: Longer than a process keeps what it measured (1 s), and than the time between two heartbeats (1 s), in seconds.
FLUSHED_S = 1.5

#: Longest time a reading may take, in seconds: an overloaded service is late.
TIMEOUT_S = 10.0

Labels = tuple[tuple[str, str], ...]

#: The parts of a job's time that have a histogram, by their names in the report.
PARTS: dict[str, Metric] = {
    "submit": m.SUBMIT_S,
    "wait": m.WAIT_S,
    "tokenize": m.TOKENIZE_S,
    "compute": m.COMPUTE_S,
    "merge": m.MERGE_S,
    "commit": m.COMMIT_S,
    "deliver": m.DELIVERY_S,
    "job": m.JOB_S,
    "batch_rows": m.BATCH_ROWS,
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One reading: when it was taken, by the monotonic clock, and every sample by name and labels."""

    at_s: float
    samples: Mapping[str, Mapping[Labels, float]]

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Return a metric's values by one of its labels, summed over the others."""
        found: dict[str, float] = {}
        for labels, value in self.samples.get(name, {}).items():
            key = dict(labels).get(label, "")
            found[key] = found.get(key, 0.0) + value
        return found


def parse_metrics(text: str, at_s: float) -> Snapshot:
    """Return the samples of an exposition in Prometheus' text format; raise ServiceUnreachable for another text."""
    samples: dict[str, dict[Labels, float]] = {}
    try:
        for sample in (each for family in text_string_to_metric_families(text) for each in family.samples):
            samples.setdefault(sample.name, {})[tuple(sample.labels.items())] = sample.value
    except ValueError as error:
        raise ServiceUnreachable(f"what the service gives as its metrics cannot be read: {error}") from None
    return Snapshot(at_s, samples)


def snapshot(url: str, api_key: str | None = None) -> Snapshot:
    """Read a service's metrics now; raise ServiceError if it refuses, ServiceUnreachable if it cannot be reached."""
    try:
        with httpx2.Client(**http_options(url, api_key), timeout=TIMEOUT_S) as http:
            response = http.get("/metrics")
    except httpx2.HTTPError as error:
        raise ServiceUnreachable(f"{url} does not respond: {error}") from error
    if response.status_code != 200:
        raise read_problem(response.status_code, response.content)
    return parse_metrics(response.text, time.monotonic())


def split(before: Snapshot, after: Snapshot, seconds: float | None = None) -> ServiceSplit:
    """Return the service's work between two readings. Give ``seconds`` if the work took less than the time between."""
    passed = max(seconds or after.at_s - before.at_s, 1e-9)
    tokens = sum(added(before, after, m.TOKENS.name, "version").values())
    padding = sum(added(before, after, m.PADDING_TOKENS.name, "version").values())
    at_work = added(before, after, m.CORE_S.name, "core")
    items = added(before, after, m.CORE_WORK["items"].name, "core")
    parts = {name: histogram_of(after, each).since(histogram_of(before, each)) for name, each in PARTS.items()}
    return ServiceSplit(
        **{name: spread_of(histogram) for name, histogram in parts.items()},
        padding_share=round(padding / (padding + tokens), 4) if padding + tokens else None,
        tokens_per_s=round(tokens / passed, 1),
        core_busy={core: round(min(1.0, value / passed), 4) for core, value in sorted(at_work.items())},
        core_items={core: round(count) for core, count in items.items()},
        seconds=round(passed, 3),
    )


def added(before: Snapshot, after: Snapshot, name: str, label: str) -> dict[str, float]:
    """Return the growth of a counter, by a label."""
    then, now = before.by_label(name, label), after.by_label(name, label)
    return {key: value - then.get(key, 0.0) if value >= then.get(key, 0.0) else value for key, value in now.items()}


def histogram_of(reading: Snapshot, metric: Metric) -> Histogram:
    """Return a histogram over all of its labels, with the buckets that the service has."""
    counts = {float(bound): count for bound, count in reading.by_label(f"{metric.name}_bucket", "le").items()}
    bounds = tuple(sorted(bound for bound in counts if bound != float("inf")))
    below = [counts[bound] for bound in (*bounds, float("inf")) if bound in counts]
    own = tuple(upper - lower for upper, lower in zip(below, (0.0, *below), strict=False))
    return Histogram(bounds, own, sum(reading.by_label(f"{metric.name}_sum", "").values()))


def spread_of(histogram: Histogram) -> Spread | None:
    """Return a histogram as a spread; None without values. The mean is exact, the rest as exact as the buckets."""
    if not histogram.count:
        return None
    top = max(number for number, count in enumerate(histogram.counts) if count)
    most = histogram.bounds[min(top, len(histogram.bounds) - 1)]
    p50, p90, p95, p99 = (histogram.quantile(share) or 0.0 for share in (0.5, 0.9, 0.95, 0.99))
    mean = histogram.sum / histogram.count
    return Spread(count=round(histogram.count), mean=mean, p50=p50, p90=p90, p95=p95, p99=p99, max=most)


@dataclass(slots=True)
class SplitWatch:
    """Reads a service's metrics as the measured part begins and ends; ``problem`` says why it could not."""

    url: str
    api_key: str | None = None
    problem: str | None = None
    _readings: dict[str, Snapshot] = field(default_factory=dict)

    def on_phase(self, phase: str) -> None:
        """Read when a phase begins: ``measured`` or ``tail``."""
        if phase in ("measured", "tail"):
            self._read(phase)

    def result(self, *, is_over: bool = False) -> ServiceSplit | None:
        """Return the split. With ``is_over`` no load followed the measured part: wait until all its work is counted."""
        before, after = self._readings.get("measured"), self._readings.get("tail")
        if before is not None and (is_over or after is None):
            ended_s = after.at_s if after is not None else time.monotonic()
            time.sleep(FLUSHED_S)
            self._read("settled")
            settled = self._readings.get("settled")
            return None if settled is None else split(before, settled, ended_s - before.at_s)
        return None if before is None or after is None else split(before, after)

    def _read(self, name: str) -> None:
        try:
            self._readings[name] = snapshot(self.url, self.api_key)
        except (ServiceError, ServiceUnreachable) as error:
            self.problem = error.detail
