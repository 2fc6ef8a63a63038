"""Every metric of Corelane, in one table: name, kind, meaning, labels, buckets.

``COUNTED`` metrics are counted by the store's functions, in the step that does the work. ``MEASURED`` ones are added up
in each process by a Recorder, which sends them about once a second. ``READ`` ones are read from the store at the
scrape.
"""

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    """Prometheus' kinds of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricSource(StrEnum):
    """The source of a metric's numbers."""

    COUNTED = "counted"
    MEASURED = "measured"
    READ = "read"


COUNTED, MEASURED, READ = MetricSource


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric. ``buckets`` are the upper bounds of a histogram; one more bucket holds greater values.

    ``known`` are those values of its last label that are known beforehand. Their series begin at 0, as Prometheus sees
    no increase in a series that begins with its first event.
    """

    name: str
    kind: MetricKind
    source: MetricSource
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    known: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """Return the metric's name as a Prometheus family: without ``_total``."""
        return self.name.removesuffix("_total") if self.kind is MetricKind.COUNTER else self.name


#: The final statuses of items and jobs.
ENDS = ("succeeded", "failed", "canceled", "expired")

#: Seconds that a caller waits, from a lone item to a job of hours. Dense in the range of lone items.
LATENCY_S = (
    *(0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0),
)

#: Seconds of one step inside a process.
STEP_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

#: Seconds of an HTTP request; there is a histogram for each route.
REQUEST_S = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

#: Seconds to load a model.
LOAD_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)

ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

ALL: dict[str, Metric] = {}


def _counter(name: str, source: MetricSource, text: str, *labels: str, known: tuple[str, ...] = ()) -> Metric:
    return _define(Metric(f"corelane_{name}_total", MetricKind.COUNTER, source, text, labels, known=known))


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return _define(Metric(f"corelane_{name}", MetricKind.GAUGE, READ, text, labels))


def _histogram(name: str, source: MetricSource, buckets: tuple[float, ...], text: str, *labels: str) -> Metric:
    return _define(Metric(f"corelane_{name}", MetricKind.HISTOGRAM, source, text, labels, buckets))


def _define(metric: Metric) -> Metric:
    ALL[metric.name] = metric
    return metric


# Jobs and items, from submission to end.
JOBS_SUBMITTED = _counter("jobs_submitted", COUNTED, "Jobs accepted", "version")
RESULT_BYTES = _counter("result_bytes", COUNTED, "Bytes of the results that were stored", "version")
ITEMS_SUBMITTED = _counter("items_submitted", COUNTED, "Items of accepted jobs", "version")
ITEMS = _counter(
    "items",
    COUNTED,
    "Items that are final, by outcome: succeeded, failed, canceled, expired",
    *("version", "outcome"),
    known=ENDS,
)
JOBS_ENDED = _counter("jobs_ended", COUNTED, "Jobs that became final, by status", "status", known=ENDS)
ATTEMPTS = _counter(
    "attempts",
    COUNTED,
    "Items that a core answered, or lost, by the attempt at them; 9 and more are one",
    "attempt",
    known=(*"12345678", "9+"),
)
LEASES_LAPSED = _counter("leases_lapsed", COUNTED, "Claims that were lost with their core, and taken back")
WASTED_TOKENS = _counter(
    "wasted_tokens",
    COUNTED,
    "Tokens read in vain, by reason: core_lost (estimated: all that a lost core had claimed), handed_back (a core was "
    "stopped), canceled, expired, over (a job that was over)",
    "reason",
    known=("core_lost", "handed_back", "canceled", "expired", "over"),
)
DELIVERIES = _counter(
    "deliveries",
    COUNTED,
    "Webhooks by outcome: delivered, gone, dead; failed for each attempt that is made again",
    "outcome",
    known=("delivered", "gone", "dead", "failed"),
)
MARKS = _counter(
    "marks",
    COUNTED,
    "What was done to the service, by kind: deploy, alias, load, unload, core, calibration, pause",
    "kind",
    known=("deploy", "alias", "load", "unload", "core", "calibration", "pause"),
)
WAIT_S = _histogram("wait_seconds", COUNTED, LATENCY_S, "Time from a job's submission to its first claim", "priority")
JOB_S = _histogram("job_seconds", COUNTED, LATENCY_S, "Time from a job's submission to its end", "priority")
DELIVERY_S = _histogram("delivery_seconds", COUNTED, LATENCY_S, "Time from an event to the delivery of its webhook")

# What processes measure.
SUBMIT_S = _histogram("submit_seconds", MEASURED, STEP_S, "Time to admit a job, keep it and ring for it")
TOKENIZE_S = _histogram("tokenize_seconds", MEASURED, STEP_S, "Time to make tokens of what one batch holds")
COMPUTE_S = _histogram("compute_seconds", MEASURED, STEP_S, "Time of one forward pass", "version")
MERGE_S = _histogram("merge_seconds", MEASURED, STEP_S, "Time to make results of what one batch found")
COMMIT_S = _histogram("commit_seconds", MEASURED, STEP_S, "Time to store the results of one batch")
BATCH_ROWS = _histogram("batch_rows", MEASURED, ROWS, "Windows in one forward pass, padding left out")
BATCHES = _counter("batches", MEASURED, "Forward passes, by shape: rows x length", "version", "shape")
BATCH_WINDOWS = _counter("batch_windows", MEASURED, "Windows read in them, by shape", "version", "shape")
BATCH_SECONDS = _counter("batch_seconds", MEASURED, "Time that they took, by shape", "version", "shape")
TOKENS = _counter("tokens", MEASURED, "Tokens read, padding left out", "version")
PADDING_TOKENS = _counter("padding_tokens", MEASURED, "Padding tokens read, by shape", "version", "shape")
MODEL_LOADS = _counter(
    "model_loads",
    MEASURED,
    "Loads of models on cores, by outcome: loaded, failed",
    *("version", "outcome"),
    known=("loaded", "failed"),
)
MODEL_LOAD_S = _histogram("model_load_seconds", MEASURED, LOAD_S, "Time to load, check and warm up a model")
PROBLEMS = _counter("problems", MEASURED, "Problem documents sent, by code", "code")
HTTP_REQUESTS = _counter(
    "http_requests",
    MEASURED,
    "Requests, by route and status; 499: no response began, as the caller had left",
    "route",
    "method",
    "status",
)
HTTP_REQUEST_S = _histogram(
    "http_request_seconds",
    MEASURED,
    REQUEST_S,
    "Time from a request to the start of its response",
    "route",
    "method",
)

# Work that is not done.
WAITING_TOKENS = _gauge("waiting_tokens", "Estimated tokens in the lanes", "version")
PAUSED_TOKENS = _gauge("paused_tokens", "Estimated tokens in lanes and files that a pause holds up", "version")
PAUSED_S = _gauge("paused_seconds", "How long the longest pause of a model or owner lasts; 0 without any", "kind")
CLAIMED_TOKENS = _gauge("claimed_tokens", "Estimated tokens a core is at work on", "core")
OLDEST_WAIT_S = _gauge("oldest_wait_seconds", "Age of the oldest job with work in the lanes", "version", "priority")
BACKLOG_S = _gauge(
    "backlog_seconds",
    "Time the cores need for all open work, at the rate at which they drain it; without a core, the time of one",
)
VERSION_CORES = _gauge("version_cores", "Living cores that hold the version", "version")
MIN_CORES = _gauge("min_cores", "Cores without which the service is not ready; 0 if the first job starts one")
OPEN_JOBS = _gauge("open_jobs", "Jobs that are not final", "priority")
OPEN_ITEMS = _gauge("open_items", "Items that are not final")
WAITING_S = _gauge("waiting_seconds", "Time that work which could go on has waited for it", "what")
DELIVERIES_PENDING = _gauge("deliveries_pending", "Webhooks not delivered yet")
DELIVERIES_DEAD = _gauge("deliveries_dead", "Webhooks given up and still kept")
CIRCUITS_OPEN = _gauge("webhook_circuits_open", "Hosts whose webhooks wait")
EVENT_STREAMS = _gauge("event_streams", "Streams of events that are open, in all API processes")

# Cores.
CORE_UP = _gauge("core_up", "1 while the core's heartbeat is fresh; 0 for 15 minutes after it was lost", "core")
CORE_BUSY = _gauge("core_busy_ratio", "Share of time spent on batches", "core")
CORE_OUT = _gauge("core_out_of_service", "1 while the core takes no more work because of its errors", "core")
CORE_WAITING = _gauge("core_waiting", "1 while the core waits: another process holds it, or it recovers", "core")
CORE_FAILED_MODELS = _gauge("core_failed_models", "Versions that the core could not load", "core")
CORE_MEMORY = _gauge("core_memory_bytes", "Memory of a core's process and of its device", "core", "kind")
CORE_DEVICE = _gauge("core_device_utilization_ratio", "Share of time its device was at work", "core")
CORE_DEVICE_ERRORS = _counter("core_device_errors", READ, "Errors its device counted", "core", "kind")
CORE_S = _counter(
    "core_seconds",
    READ,
    "Core seconds that its process spent on reading texts, running models and making results",
    "core",
)
CORE_RESTARTS = _counter("core_restarts", READ, "Processes of the core that its errors or a kill ended", "core")

#: Heartbeat fields that only grow, with the counters for them.
CORE_COUNTERS = {
    "items": "Items answered",
    "contexts_read": "Texts tokenized",
    "contexts_hit": "Texts that were tokenized before, and kept",
}

#: For each of these counters, the counter of a runner's work that it is summed from.
WORK_COUNTED = {name: name.replace("contexts", "texts") for name in CORE_COUNTERS}
CORE_WORK = {name: _counter(f"core_{name}", READ, text, "core") for name, text in CORE_COUNTERS.items()}

# Redis and the loops.
STORE_UP = _gauge("store_up", "1 if Redis answered this scrape; 0 shows nothing else of the service")
REDIS_WRITES = _gauge("redis_writes", "1 while Redis can write to its disk; 0: it refuses all work")
REDIS_MEMORY = _gauge("redis_memory_bytes", "Memory that Redis uses")
REDIS_RESERVED = _gauge("redis_reserved_bytes", "Memory that results of accepted items will take")
REDIS_MEMORY_LIMIT = _gauge("redis_memory_limit_bytes", "Memory that Redis may use; 0: as much as there is")
REDIS_REPLICAS = _gauge("redis_replicas", "Replicas of Redis that are in step")
REDIS_LAG = _gauge("redis_replica_lag_bytes", "What the replica of Redis that is furthest behind has not got yet")
REDIS_SCRIPT_S = _counter("redis_script_seconds", READ, "Time Redis has spent in functions, since it was started")
LOOP_AGE_S = _gauge("loop_age_seconds", "Time since a loop last went round", "loop")
