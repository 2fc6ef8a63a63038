"""Choose which cores of a host get a worker, and the device of each. Pure.

Cores are numbered as workers number them: across all devices of the host, consecutively within a device.
"""

from dataclasses import dataclass
from itertools import groupby

from corelane.domain.instances import CPU, INSTANCES, Instance
from corelane.errors import InvalidInput

#: The target of hosts with NVIDIA GPUs, each of which is one core.
CUDA = "cuda"

#: Families of hosts with the chips of another family.
CHIPS_OF = {"trn1n": "trn1"}


def target_of(instance: Instance) -> str:
    """Return the target that a type of host runs."""
    return CHIPS_OF.get(instance.family, instance.family)


#: The types of host that have Neuron chips, by their target.
HOSTS = sorted((each for each in INSTANCES.values() if each.cores), key=target_of)

#: The type of host with the most cores, for each of the targets with Neuron chips.
LARGEST = {target: max(hosts, key=lambda host: host.cores) for target, hosts in groupby(HOSTS, target_of)}

TARGETS = (CPU, *LARGEST, CUDA)


@dataclass(frozen=True, slots=True)
class Layout:
    """The workers of a host: one for each core from 0. ``cores_per_chip`` is 0 if there are no Neuron chips."""

    target: str
    cores: int
    cores_per_chip: int = 0
    instance: str | None = None

    @property
    def chips(self) -> int:
        """Return how many devices the workers use."""
        return -(-self.cores // self.cores_per_chip) if self.cores_per_chip else 0

    @property
    def on_devices(self) -> bool:
        """Whether the cores are on devices, and not CPUs."""
        return self.target != CPU


def lay_out(
    target: str | None = None, cores: int | None = None, chips: int | None = None, instance: str | None = None
) -> Layout:
    """Return the layout of a host, from its type, chips or cores; raise InvalidInput if they contradict each other."""
    host = next((each for each in HOSTS if each.name == instance), None)
    if instance is not None and host is None:
        raise InvalidInput(f"{instance}: no such type of host; there are {', '.join(each.name for each in HOSTS)}")
    target = target or (CPU if host is None else target_of(host))
    if target not in TARGETS:
        raise InvalidInput(f"{target}: no such target; there are {', '.join(TARGETS)}")
    if host is not None and target_of(host) != target:
        raise InvalidInput(f"{host.name} has no {target} cores; its target is {target_of(host)}")
    for name, number in (("--cores", cores), ("--chips", chips)):
        if number is not None and number < 1:
            raise InvalidInput(f"{name} is {number}; it must be 1 or more")
    if target not in LARGEST:
        if chips is not None:
            raise InvalidInput(f"--chips is for Neuron targets; {target} has none: give --cores")
        if cores is None:
            raise InvalidInput(f"give the number of workers: --cores N (target {target})")
        return Layout(target, cores, instance=instance)
    return _on_chips(target, cores, chips, host)


def _on_chips(target: str, cores: int | None, chips: int | None, host: Instance | None) -> Layout:
    most = host or LARGEST[target]
    per_chip = most.cores // most.chips
    if chips is None and cores is None and host is None:
        raise InvalidInput(f"give --cores, --chips or --instance (target {target}, {per_chip} cores a chip)")
    which = most.name if host else f"{most.name}, the largest host of this target,"
    if chips is not None and chips > most.chips:
        raise InvalidInput(f"--chips is {chips}, but {which} has {most.chips}")
    if chips is not None and cores is not None and cores > chips * per_chip:
        raise InvalidInput(f"--cores is {cores}, but {chips} chips of {target} have {chips * per_chip}")
    if cores is not None and cores > most.cores:
        raise InvalidInput(f"--cores is {cores}, but {which} has {most.cores}")
    return Layout(target, cores or per_chip * (chips or most.chips), per_chip, host.name if host else None)
