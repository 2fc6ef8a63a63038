"""The exposition: sums and gauges as text for Prometheus."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from corelane.metrics.definitions import ALL, JOBS_SUBMITTED, WAITING_TOKENS, Metric, MetricKind, MetricSource
from corelane.metrics.series import Histogram, Labels, Series


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One value of a metric that is read from the store."""

    metric: Metric
    value: float
    labels: Labels = ()


def render(series: Series | None, samples: Iterable[MetricSample]) -> bytes:
    """Return every metric in Prometheus' text format: the sums in ``series``, and ``samples``.

    Without ``series`` only metrics with samples are shown.
    """
    registry = CollectorRegistry()
    registry.register(_Shown(series, samples))
    return generate_latest(registry)


class _Shown(Collector):
    """Yields every metric in the order of definition; a metric without values still has its description."""

    def __init__(self, series: Series | None, samples: Iterable[MetricSample]) -> None:
        self._is_partial = series is None
        self._series = series = series or Series({}, {})
        self._samples: dict[Metric, list[MetricSample]] = {}
        for sample in samples:
            self._samples.setdefault(sample.metric, []).append(sample)
        self._versions = {labels[0] for labels in series.counters.get(JOBS_SUBMITTED, ())}
        self._versions |= {sample.labels[0] for sample in self._samples.get(WAITING_TOKENS, ())}

    def collect(self) -> Iterator[Family]:
        """Yield the metric families."""
        for metric in ALL.values():
            if self._is_partial and metric not in self._samples:
                continue
            if metric.kind is MetricKind.HISTOGRAM:
                yield self._histograms(metric)
                continue
            values = self._zeros(metric) | dict(self._series.counters.get(metric, {}))
            values |= {sample.labels: sample.value for sample in self._samples.get(metric, ())}
            made = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
            family = made(metric.family, metric.help, labels=metric.labels)
            for labels, value in sorted(values.items()):
                family.add_metric(labels, value)
            yield family

    def _zeros(self, metric: Metric) -> dict[Labels, float]:
        """Return the series of a counter that exist from the start, each at 0."""
        if metric.source is MetricSource.READ:
            return {}
        if not metric.labels:
            return {(): 0.0}
        of: list[Labels] = [(version,) for version in self._versions] if metric.labels[0] == "version" else [()]
        last: list[Labels] = [(value,) for value in metric.known] or [()]
        born = [(*first, *second) for first in of for second in last]
        return dict.fromkeys((labels for labels in born if len(labels) == len(metric.labels)), 0.0)

    def _histograms(self, metric: Metric) -> HistogramMetricFamily:
        found = dict(self._series.histograms.get(metric, {}))
        if not metric.labels:
            found.setdefault((), self._series.histogram(metric))
        family = HistogramMetricFamily(metric.family, metric.help, labels=metric.labels)
        for labels, histogram in sorted(found.items()):
            family.add_metric(labels, _buckets(histogram), histogram.sum)
        return family


def _buckets(histogram: Histogram) -> Sequence[tuple[str, float]]:
    """Return the buckets as Prometheus counts them: each includes all values below its bound."""
    names = [*(repr(float(bound)) for bound in histogram.bounds), "+Inf"]
    return list(zip(names, accumulate(histogram.counts), strict=True))
