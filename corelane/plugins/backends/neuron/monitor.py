"""Reports of ``neuron-monitor``: use and memory by core, errors and vCPU by runtime, errors by device. Pure.

A report is one JSON object for a period. Only documented keys are read. Each may be missing, null or of another type:
that figure is then left out. Every runtime lists all cores, with 0 for cores of others, so a core's utilisation is the
highest that any runtime reports. Errors are counted per period, so they are added up.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

#: Time between two reports, in seconds.
PERIOD_S = 2

#: The configuration that is sent to the tool.
CONFIG: Mapping[str, Any] = {
    "period": f"{PERIOD_S}s",
    "neuron_runtimes": [
        {
            "tag_filter": ".*",
            "metrics": [
                {"type": "neuroncore_counters"},
                {"type": "memory_used"},
                {"type": "neuron_runtime_vcpu_usage"},
                {"type": "execution_stats"},
            ],
        }
    ],
    "system_metrics": [{"type": "vcpu_usage"}, {"period": f"{PERIOD_S}s", "type": "neuron_hw_counters"}],
}

#: Kinds of errors that are counted from the start with 0, so that a first error is seen as a change.
EXECUTION_ERRORS = ("generic", "numerical", "transient", "model", "runtime", "hardware")
MEMORY_ERRORS = ("mem_ecc_corrected", "mem_ecc_uncorrected", "sram_ecc_corrected", "sram_ecc_uncorrected")

#: Other names of the same kinds: examples and prose in the tool's manual differ.
SAME_KINDS = {"numeric": "numerical"}


@dataclass(slots=True)
class MonitorTotals:
    """The sums of the tool's reports since its start. A runtime is known by its tag and by its process."""

    reports: int = 0
    utilization: dict[int, float] = field(default_factory=dict)
    memory_bytes: dict[int, int] = field(default_factory=dict)
    errors: dict[str, Counter[str]] = field(default_factory=dict)
    device_errors: dict[int, Counter[str]] = field(default_factory=dict)
    cores_per_device: int = 0
    #: Shares of the host's vCPUs: in use by all processes, and by each runtime.
    host_vcpu: float | None = None
    runtime_vcpu: dict[str, float] = field(default_factory=dict)

    def take(self, report: object) -> None:
        """Add a report. The first one is ignored: its period is too short to be useful."""
        self.reports += 1
        if self.reports == 1:
            return
        found = _object(report)
        runtimes = [_object(each) for each in _list(found.get("neuron_runtime_data"))]
        self.utilization, self.memory_bytes, self.runtime_vcpu = {}, {}, {}
        average = _object(_object(_object(found.get("system_data")).get("vcpu_usage")).get("average_usage"))
        idle = [*_percents(average, "idle", "io_wait")]
        self.host_vcpu = max(0.0, 1 - sum(idle) / 100) if idle else None
        for runtime in runtimes:
            self._take_runtime(runtime, _object(runtime.get("report")))
        hardware = _object(_object(found.get("system_data")).get("neuron_hw_counters"))
        for device in map(_object, _list(hardware.get("neuron_devices"))):
            number = device.get("neuron_device_index")
            if isinstance(number, int):
                counted = self.device_errors.setdefault(number, Counter(dict.fromkeys(MEMORY_ERRORS, 0)))
                counted.update({kind: count for kind in MEMORY_ERRORS if (count := _count(device.get(kind)))})
        per_device = _object(found.get("neuron_hardware_info")).get("neuroncore_per_device_count")
        self.cores_per_device = _count(per_device) or self.cores_per_device

    def _take_runtime(self, runtime: Mapping[str, Any], report: Mapping[str, Any]) -> None:
        in_use = _object(report.get("neuroncore_counters")).get("neuroncores_in_use")
        for core, counters in _by_core(in_use):
            share = min(1.0, max(_utilizations(counters), default=0.0) / 100)
            self.utilization[core] = max(share, self.utilization.get(core, 0.0))
        used = _object(_object(report.get("memory_used")).get("neuron_runtime_used_bytes"))
        for core, kinds in _by_core(_object(used.get("usage_breakdown")).get("neuroncore_memory_usage")):
            self.memory_bytes[core] = self.memory_bytes.get(core, 0) + sum(map(_count, kinds.values()))
        stats = _object(report.get("execution_stats"))
        summary = _object(stats.get("error_summary"))
        found = {SAME_KINDS.get(kind, kind): _count(count) for kind, count in summary.items()}
        found["timed_out"] = _count(_object(stats.get("execution_summary")).get("timed_out"))
        known = dict.fromkeys(EXECUTION_ERRORS, 0)
        usage = _object(_object(report.get("neuron_runtime_vcpu_usage")).get("vcpu_usage"))
        for name in {str(runtime.get("neuron_runtime_tag", "")), str(runtime.get("pid", ""))} - {""}:
            if usage:
                self.runtime_vcpu[name] = min(1.0, sum(_percents(usage, "user", "system")) / 100)
            counted = self.errors.setdefault(name, Counter(known))
            for kind, count in found.items():
                counted[kind] += count

    def encode(self) -> bytes:
        """Return the text that the workers of a host share."""
        return orjson.dumps(self, option=orjson.OPT_NON_STR_KEYS)


def figures(text: bytes, cores: Sequence[int], runtimes: Sequence[str]) -> dict[str, Any]:
    """Return a worker's figures from a text that ``encode`` made.

    These are ``utilization``, ``memory_bytes`` and ``errors`` of its cores, and the shares of the host's vCPUs in use,
    ``host_vcpu`` and ``runtime_vcpu``. ``runtimes`` are the names of the worker's runtime. Figures that the tool did
    not report are left out.
    """
    try:
        told = _object(orjson.loads(text))
    except ValueError:
        return {}
    found: dict[str, Any] = {}
    by_core, memory = _object(told.get("utilization")), _object(told.get("memory_bytes"))
    if shares := [by_core[str(core)] for core in cores if str(core) in by_core]:
        found["utilization"] = round(sum(shares) / len(shares), 4)
    if sizes := [memory[str(core)] for core in cores if str(core) in memory]:
        found["memory_bytes"] = sum(sizes)
    by_runtime = _object(told.get("runtime_vcpu"))
    own_vcpu = next((by_runtime[name] for name in runtimes if name in by_runtime), None)
    vcpu = {"host_vcpu": told.get("host_vcpu"), "runtime_vcpu": own_vcpu}
    found |= {name: round(share, 4) for name, share in vcpu.items() if share is not None}
    errors: Counter[str] = Counter()
    of_runtimes, of_devices = _object(told.get("errors")), _object(told.get("device_errors"))
    own = next((name for name in runtimes if name in of_runtimes), None)
    count = told.get("cores_per_device") or 0
    for counted in [
        *([of_runtimes[own]] if own is not None else []),
        *(of_devices.get(str(device), {}) for device in sorted({core // count for core in cores} if count else ())),
    ]:
        for kind, number in counted.items():
            errors[kind] += number
    return found | ({"errors": dict(errors)} if errors else {})


def _by_core(found: object) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for key, value in _object(found).items():
        if key.isdigit():
            yield int(key), _object(value)


def _utilizations(counters: Mapping[str, Any]) -> Iterator[float]:
    """Yield a core's utilisation in percent; on trn2 one for each of its physical cores."""
    for key, value in counters.items():
        if isinstance(value, dict):
            yield from _utilizations(value)
        elif key == "neuroncore_utilization" and isinstance(value, int | float):
            yield float(value)


def _percents(found: Mapping[str, Any], *kinds: str) -> Iterator[float]:
    """Yield the percentages of some kinds, if they are reported."""
    return (float(found[kind]) for kind in kinds if isinstance(found.get(kind), int | float))


def _object(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _list(found: object) -> list[Any]:
    return found if isinstance(found, list) else []


def _count(found: object) -> int:
    return int(found) if isinstance(found, int | float) and found > 0 else 0
