"""The exposition: sums and gauges as text for Prometheus."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from corelane.metrics.definitions import ALL, Kind, Metric, Source
from corelane.metrics.series import Histogram, Labels, Series


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric that is read from the store."""

    metric: Metric
    value: float
    labels: Labels = ()


def render(series: Series, samples: Iterable[Sample]) -> bytes:
    """Return every metric as Prometheus' text: the sums, and the values that were read with them."""
    registry = CollectorRegistry()
    registry.register(_Shown(series, samples))
    return generate_latest(registry)


class _Shown(Collector):
    """Yields every metric in the order of their definitions; one without values still shows what it is."""

    def __init__(self, series: Series, samples: Iterable[Sample]) -> None:
        self._series = series
        self._samples: dict[Metric, list[Sample]] = {}
        for sample in samples:
            self._samples.setdefault(sample.metric, []).append(sample)

    def collect(self) -> Iterator[Family]:
        """Yield the families."""
        for metric in ALL.values():
            if metric.kind is Kind.HISTOGRAM:
                yield self._histograms(metric)
                continue
            values = dict(self._series.counters.get(metric, {}))
            values |= {sample.labels: sample.value for sample in self._samples.get(metric, ())}
            if metric.source is not Source.READ and not metric.labels:
                values.setdefault((), 0.0)
            made = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            family = made(metric.family, metric.help, labels=metric.labels)
            for labels, value in sorted(values.items()):
                family.add_metric(labels, value)
            yield family

    def _histograms(self, metric: Metric) -> HistogramMetricFamily:
        found = dict(self._series.histograms.get(metric, {}))
        if not metric.labels:
            found.setdefault((), self._series.histogram(metric))
        family = HistogramMetricFamily(metric.family, metric.help, labels=metric.labels)
        for labels, histogram in sorted(found.items()):
            family.add_metric(labels, _buckets(histogram), histogram.sum)
        return family


def _buckets(histogram: Histogram) -> Sequence[tuple[str, float]]:
    """Return the buckets as Prometheus counts them: each with all values below its bound."""
    names = [*(repr(float(bound)) for bound in histogram.bounds), "+Inf"]
    return list(zip(names, accumulate(histogram.counts), strict=True))
