"""What fits on a host: workers by its cores, vCPU and memory, and models by the memory of its devices. Pure."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from corelane.domain.instances import Instance

GIB = 1 << 30

#: Host memory for the API, Redis, the keeper and the system, in GiB, and vCPU for them.
RESERVED_GIB, RESERVED_VCPU = 1.5, 1

#: A worker's process without a model, in bytes: measured, torch and tokenizers loaded.
WORKER_BYTES = 450_000_000

#: CPU time of a request, and of each item in it, outside the cores' batches, in seconds: measured with the null engine
#: (docs/performance.md, "The queue plane alone").
REQUEST_CPU_S, ITEM_CPU_S = 0.00245, 0.000016

#: The share of a host's CPUs that requests may take: beyond it they wait for each other.
CPU_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class ModelWeight:
    """What a model weighs: a worker's process that holds it, and the model itself on its device, in bytes."""

    worker_bytes: int
    device_bytes: int

    @classmethod
    def of(cls, model_bytes: int, worker_bytes: int | None = None) -> "ModelWeight":
        """Return the weight of a model; a worker that was not measured holds its process and one copy."""
        return cls(worker_bytes or WORKER_BYTES + model_bytes, model_bytes)


@dataclass(frozen=True, slots=True)
class HostRoom:
    """What fits on one host: workers, what binds them, and models of this weight that a core's memory holds."""

    instance: Instance
    workers: int
    binds: str
    by_vcpu: int
    by_host_memory: int
    device_gib_per_core: float
    models_per_core: int


def room_on(instance: Instance, weight: ModelWeight) -> HostRoom:
    """Return what fits on a host of a type. A worker takes a core, a vCPU and its memory."""
    per_core_gib = instance.device_gib / instance.cores if instance.cores else 0.0
    models = int(per_core_gib * GIB // max(1, weight.device_bytes))
    by_vcpu = max(0, instance.vcpu - RESERVED_VCPU)
    by_memory = max(0, int((instance.host_gib - RESERVED_GIB) * GIB // weight.worker_bytes))
    bounds = {"cores": instance.cores, "vCPU": by_vcpu, "host memory": by_memory}
    if instance.cores and not models:
        bounds["device memory"] = 0
    workers = min(bounds.values())
    binds = next(name for name, bound in bounds.items() if bound == workers)
    return HostRoom(instance, workers, binds, by_vcpu, by_memory, per_core_gib, models)


def rooms(instances: Iterable[Instance], weight: ModelWeight) -> list[HostRoom]:
    """Return what fits on each type that has an accelerator."""
    return [room_on(instance, weight) for instance in instances if instance.cores]


def hosts_for(
    instance: Instance,
    cores: int,
    weight: ModelWeight,
    *,
    requests_per_s: float,
    items_per_s: float,
    own_cpus: int | None = None,
) -> tuple[int, str] | None:
    """Return how many hosts of a type hold so many workers and serve so many requests, and what binds; None if a worker
    does not fit on one. A host without an accelerator runs a worker on each CPU; the profile's has ``own_cpus``.
    """
    if not instance.cores:
        workers = instance.vcpu or own_cpus or cores
        return math.ceil(cores / workers), "cores"
    room = room_on(instance, weight)
    if not room.workers:
        return None
    by_workers = math.ceil(cores / room.workers)
    cpu_s = requests_per_s * REQUEST_CPU_S + items_per_s * ITEM_CPU_S
    by_requests = math.ceil(cpu_s / (CPU_SHARE * instance.vcpu))
    return (by_workers, room.binds) if by_workers >= by_requests else (by_requests, "vCPU for requests")
