"""Hosts that could serve a load: what fits on each, its speed, even if that is only published, and its cost. Pure."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from corelane.domain.instances import CPU, Instance
from corelane.domain.prices import cost_per_million
from corelane.errors import InvalidInput
from corelane.plugins.lab.planning.forecast import CoresOutlook, Demand, LoadForecast
from corelane.plugins.lab.planning.profile import Profile, ShapeTime

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
    """The memory of a model: of a worker's process that holds it, and of the model on its device, in bytes."""

    worker_bytes: int
    device_bytes: int

    @classmethod
    def of(cls, model_bytes: int, worker_bytes: int | None = None) -> "ModelWeight":
        """Return a model's memory. Without ``worker_bytes``, a worker takes a bare process and one model copy."""
        return cls(worker_bytes or WORKER_BYTES + model_bytes, model_bytes)


@dataclass(frozen=True, slots=True)
class HostRoom:
    """The room on one host: how many workers fit, what limits them, and how many models a core's memory holds."""

    instance: Instance
    workers: int
    binds: str
    device_gib_per_core: float
    models_per_core: int


def room_on(instance: Instance, weight: ModelWeight) -> HostRoom:
    """Return the room on a type of host. A worker needs a core, a vCPU and its memory."""
    per_core_gib = instance.device_gib / instance.cores if instance.cores else 0.0
    models = int(per_core_gib * GIB // max(1, weight.device_bytes))
    by_vcpu = max(0, instance.vcpu - RESERVED_VCPU)
    by_memory = max(0, int((instance.host_gib - RESERVED_GIB) * GIB // weight.worker_bytes))
    bounds = {"cores": instance.cores, "vCPU": by_vcpu, "host memory": by_memory}
    if instance.cores and not models:
        bounds["device memory"] = 0
    workers = min(bounds.values())
    binds = next(name for name, bound in bounds.items() if bound == workers)
    return HostRoom(instance, workers, binds, per_core_gib, models)


def hosts_for(
    instance: Instance,
    cores: int,
    weight: ModelWeight,
    requests_per_s: float,
    items_per_s: float,
    *,
    own_cpus: int | None = None,
) -> tuple[int, str] | None:
    """Return how many hosts of a type run ``cores`` workers and serve the requests, and what limits them.

    None if a worker does not fit on one. A host without an accelerator runs a worker on each CPU; the profile's host
    has ``own_cpus``.
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


#: Sequences a second of one core at its best batch, with the source; all for BERT-base with 128 tokens. A smaller model
#: gains less from a faster core, as part of each call does not depend on the model.
PER_CORE_PER_S = {
    # 8x128 in 473 ms, bf16, one core of an AMD EPYC with AVX-512: benchmarks/models.py
    CPU: 16.9,
    # inf1.xlarge, batch 6, 1,180.7/s: AWS Neuron documents, benchmarks of Inf1, 2024-09-16
    "inf1": 1180.7 / 4,
    # inf2.xlarge, batch 8, 2,674.19/s: AWS Neuron documents, benchmarks of Inf2, 2026-02-26
    "inf2": 2674.19 / 2,
    # trn1.2xlarge, batch 16, 3,421.57/s: AWS Neuron documents, benchmarks of Trn1, 2026-02-26
    "trn1": 3421.57 / 2,
}

#: Families with the same cores as another family.
SAME_CORES = {"trn1n": "trn1"}

#: No batch is estimated to take less, in seconds: the published p50 of one row on Inf2.
LEAST_BATCH_S = 0.001

#: The workload of the workers in a patch, the container in it, and the resource of the Neuron device plugin.
WORKLOAD, CONTAINER, NEURON_CORE = "corelane-worker", "worker", "aws.amazon.com/neuroncore"


def family_of(instance: str | None) -> str:
    """Return the family that an instance belongs to; ``cpu`` for a host without an accelerator."""
    family = instance.partition(".")[0] if instance else CPU
    return SAME_CORES.get(family, family)


def guess(profile: Profile, family: str) -> Profile:
    """Return the profile of another family's core, estimated from published figures; raise InvalidInput without any."""
    own = family_of(profile.instance) if profile.instance or profile.target == "cpu" else profile.target
    if own == family:
        return profile
    for each in (own, family):
        if each not in PER_CORE_PER_S:
            raise InvalidInput(f"nothing was published to guess the speed of {each} from; give a profile of it")
    ratio = PER_CORE_PER_S[own] / PER_CORE_PER_S[family]
    said = f"batches at {1 / ratio:.3g} times the speed of {own}, as BERT-base; not measured"
    changes: dict[str, object] = {"instance": family, "guess": said}
    shapes = []
    for shape in profile.shapes:
        base_s, row_s = ratio * shape.base_s, ratio * shape.row_s
        if family != CPU:  # an accelerator runs full batches alone
            full_s = base_s + row_s * (shape.rows if profile.flexible_rows else 0)
            base_s, row_s = max(LEAST_BATCH_S, full_s), 0.0
        shapes.append(ShapeTime(rows=shape.rows, length=shape.length, base_s=base_s, row_s=row_s))
    if family != CPU:
        changes |= {"flexible_rows": False, "cpus": None, "target": "neuron"}
    return profile.model_copy(update={**changes, "shapes": shapes})


@dataclass(frozen=True, slots=True)
class HostChoice:
    """Hosts of one type that serve the load. ``per_hour`` is None if no price is known."""

    instance: Instance
    forecast: LoadForecast
    outlook: CoresOutlook
    hosts: int
    binds: str
    per_hour: float | None
    per_million: float | None

    @property
    def guess(self) -> str | None:
        """How the profile was estimated, if it was not measured."""
        return self.forecast.profile.guess

    @property
    def workers_a_host(self) -> int:
        """How many workers each host runs."""
        return -(-self.outlook.cores // self.hosts)


def compare(
    profiles: Mapping[str, Profile],
    own: Profile,
    demand: Demand,
    instances: Iterable[Instance],
    *,
    reserved: bool = False,
) -> tuple[list[HostChoice], dict[str, str]]:
    """Return the hosts that could serve, cheapest first, and why others could not; ``own`` is for unknown families."""
    found: list[HostChoice] = []
    refused: dict[str, str] = {}
    for instance in instances:
        family = family_of(instance.name)
        try:
            profile = profiles.get(family) or guess(own, family)
            found.append(_choice(instance, LoadForecast(profile, demand), reserved=reserved))
        except InvalidInput as error:
            refused[instance.name] = error.detail
    found.sort(key=lambda each: (math.inf if each.per_hour is None else each.per_hour, each.hosts))
    return found, refused


def choose(found: Sequence[HostChoice]) -> HostChoice:
    """Return the cheapest of the hosts whose cores were measured; without any, the cheapest of all."""
    return next((each for each in found if each.guess is None), found[0])


def _choice(instance: Instance, forecast: LoadForecast, *, reserved: bool) -> HostChoice:
    profile, demand, outlook = forecast.profile, forecast.demand, forecast.find()
    weight = ModelWeight.of(profile.device_bytes or 0, profile.worker_bytes)
    found = hosts_for(instance, outlook.cores, weight, demand.rate_per_s, demand.items_per_s, own_cpus=profile.cpus)
    if found is None:
        raise InvalidInput("a worker of this model does not fit on it")
    hosts, binds = found
    price = instance.usd_reserved_per_hour if reserved else instance.usd_per_hour
    per_hour = None if price is None else hosts * price
    per_million = None if per_hour is None else cost_per_million(per_hour, demand.items_per_s)
    return HostChoice(instance, forecast, outlook, hosts, binds, per_hour, per_million)


def kustomize_patch(candidate: HostChoice, about: Sequence[str]) -> str:
    """Return a strategic merge patch of the workers for Kustomize, for all hosts together."""
    memory = (candidate.forecast.profile.worker_bytes or WORKER_BYTES) * 5 // 4
    amounts = {"cpu": "1", "memory": f"{memory * 1024 // GIB}Mi"}
    limits = {"memory": amounts["memory"]}
    pod: dict[str, object] = {}
    if candidate.instance.cores:
        limits[NEURON_CORE] = "1"
        pod["nodeSelector"] = {"node.kubernetes.io/instance-type": candidate.instance.name}
    pod["containers"] = [{"name": CONTAINER, "resources": {"requests": amounts, "limits": limits}}]
    patch = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": WORKLOAD},
        "spec": {"replicas": candidate.outlook.cores, "template": {"spec": pod}},
    }
    # JSON is YAML too.
    return "\n".join([*(f"# {line}" for line in about), json.dumps(patch, indent=2), ""])
