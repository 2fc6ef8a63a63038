"""Every metric of Corelane, in one place. One prefix, base units, ``_total`` for what only grows.

What workers do is carried by their heartbeats and shown here per core by whichever API process is scraped; that
keeps one scrape target per API and counts nothing twice.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

#: Heartbeat fields that only grow, with what they count.
CORE_COUNTERS = {
    "items": "Items answered",
    "batches": "Forward passes run",
    "windows": "Windows read",
    "tokens": "Tokens read, padding left out",
    "padding": "Padding tokens read",
}


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """Heartbeats, waiting work and jobs that ended, by status, as last read from the store."""

    cores: Iterable[Mapping[str, object]] = ()
    waiting_tokens: Mapping[str, int] = field(default_factory=dict)
    claimed_tokens: Mapping[str, int] = field(default_factory=dict)
    ended_jobs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeliveryCounts:
    """Webhooks as last read from the store: attempts by outcome since the beginning, and how things stand."""

    outcomes: Mapping[str, int] = field(default_factory=dict)
    pending: int = 0
    dead: int = 0
    open_circuits: int = 0


class ApiMetrics:
    """The metrics of one API process; a new registry each, so that tests and apps do not share counts."""

    def __init__(self) -> None:
        disable_created_metrics()
        self.registry = CollectorRegistry()
        self.jobs_submitted = Counter(
            "corelane_jobs_submitted_total", "Jobs accepted by this API process", registry=self.registry
        )
        self.items_submitted = Counter(
            "corelane_items_submitted_total", "Items accepted by this API process", registry=self.registry
        )
        self.problems = Counter(
            "corelane_problems_total", "Problem documents sent, by code", ["code"], registry=self.registry
        )
        self.submit_seconds = Histogram(
            "corelane_submit_seconds", "Time to admit a job, keep it and ring for it", registry=self.registry
        )
        self.event_streams = Gauge(
            "corelane_event_streams", "Streams of events that are open in this API process", registry=self.registry
        )
        self.fleet = FleetCollector()
        self.registry.register(self.fleet)
        self.deliveries = DeliveryCollector()
        self.registry.register(self.deliveries)
        self.overdue = OverdueCollector()
        self.registry.register(self.overdue)


class FleetCollector(Collector):
    """Shows the last snapshot of the fleet; the API refreshes it before each scrape."""

    def __init__(self) -> None:
        self.snapshot = FleetSnapshot()

    def collect(self) -> Iterator[Metric]:
        """Yield the fleet's metrics, labelled by core."""
        waiting = GaugeMetricFamily("corelane_waiting_tokens", "Estimated tokens in the lanes", labels=["version"])
        for version, tokens in self.snapshot.waiting_tokens.items():
            waiting.add_metric([version], tokens)
        yield waiting
        claimed = GaugeMetricFamily("corelane_claimed_tokens", "Estimated tokens a core is at work on", labels=["core"])
        for core, tokens in self.snapshot.claimed_tokens.items():
            claimed.add_metric([core], tokens)
        yield claimed
        ended = CounterMetricFamily("corelane_jobs_ended", "Jobs that became final, by status", labels=["status"])
        for status, count in self.snapshot.ended_jobs.items():
            ended.add_metric([status], count)
        yield ended
        up = GaugeMetricFamily("corelane_core_up", "1 while the core's heartbeat is fresh", labels=["core"])
        busy = GaugeMetricFamily("corelane_core_busy_ratio", "Share of time spent on batches", labels=["core"])
        out = GaugeMetricFamily(
            "corelane_core_out_of_service", "1 while the core takes no more work because of its errors", labels=["core"]
        )
        restarts = CounterMetricFamily(
            "corelane_core_restarts", "Processes of the core that its errors ended", labels=["core"]
        )
        for beat in self.snapshot.cores:
            labels = [str(beat["core"])]
            up.add_metric(labels, "state" in beat)
            busy.add_metric(labels, float(str(beat.get("busy", 0))))
            out.add_metric(labels, beat.get("state") == "out_of_service")
            restarts.add_metric(labels, float(str(beat.get("restarts", 0))))
        yield from (up, busy, out, restarts)
        for name, help_text in CORE_COUNTERS.items():
            family = CounterMetricFamily(f"corelane_core_{name}", help_text, labels=["core"])
            for beat in self.snapshot.cores:
                if name in beat:
                    family.add_metric([str(beat["core"])], float(str(beat[name])))
            yield family


class DeliveryCollector(Collector):
    """Shows the last counts of deliveries; the API refreshes them before each scrape."""

    def __init__(self) -> None:
        self.counts = DeliveryCounts()

    def collect(self) -> Iterator[Metric]:
        """Deliveries by outcome, and those that wait."""
        posted = CounterMetricFamily(
            "corelane_deliveries",
            "Webhooks by outcome: delivered, gone, dead; failed for each attempt that is made again",
            labels=["outcome"],
        )
        for outcome, count in self.counts.outcomes.items():
            posted.add_metric([outcome], count)
        yield posted
        gauges = {
            "corelane_deliveries_pending": ("Webhooks not delivered yet", self.counts.pending),
            "corelane_deliveries_dead": ("Webhooks given up and still kept", self.counts.dead),
            "corelane_webhook_circuits_open": ("Hosts whose webhooks wait", self.counts.open_circuits),
        }
        for name, (help_text, value) in gauges.items():
            yield GaugeMetricFamily(name, help_text, value)


class OverdueCollector(Collector):
    """Shows how long work that could go on has waited; the API refreshes it before each scrape."""

    def __init__(self) -> None:
        self.waits: Mapping[str, float] = {}

    def collect(self) -> Iterator[Metric]:
        """Seconds, by what waits."""
        waits = GaugeMetricFamily(
            "corelane_waiting_seconds", "Time that work which could go on has waited for it", labels=["what"]
        )
        for what, seconds in self.waits.items():
            waits.add_metric([what], seconds)
        yield waits
