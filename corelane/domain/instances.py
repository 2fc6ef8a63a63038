"""Instance types with Neuron chips: their hardware and hourly prices, as of ``PRICES_OF``. Pure.

Chips, cores, vCPU and memory are from the hardware pages of the AWS Neuron documents. On-demand prices are from AWS'
price list (us-east-1, Linux, version 20260924211011), prices of reservations from the Neuron benchmarks. If a type is
not sold on demand, its price is None and must be set.
"""

from collections.abc import Mapping
from dataclasses import dataclass

#: The day of the price list that the prices were checked against.
PRICES_OF = "2026-09-24"

#: The name of a host without an accelerator, or of a type that is not in the table.
CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Instance:
    """One type of host. ``cores`` counts the cores of its accelerators; 0 if the service counts the cores it finds.

    Memory is in GiB; ``device_gib`` is the memory of all accelerators together.
    """

    name: str
    chips: int
    cores: int
    vcpu: int
    host_gib: float
    device_gib: float
    usd_per_hour: float | None
    usd_reserved_per_hour: float | None = None
    note: str = ""

    @property
    def family(self) -> str:
        """Return the part of the name before the dot, as `inf2`."""
        return self.name.partition(".")[0]


_TRN2 = "Sold as Capacity Blocks and in few regions: its price must be set. Cores as two make one (LNC 2), the default"

_ALL = (
    Instance("inf1.xlarge", 1, 4, 4, 8, 8, 0.228, 0.110),
    Instance("inf1.2xlarge", 1, 4, 8, 16, 8, 0.362, 0.174),
    Instance("inf1.6xlarge", 4, 16, 24, 48, 32, 1.180, 0.567),
    Instance("inf1.24xlarge", 16, 64, 96, 192, 128, 4.721, 2.269, "The sample prints 19 GiB of host memory"),
    Instance("inf2.xlarge", 1, 2, 4, 16, 32, 0.7582, 0.328, "The sample prints the devices' 32 GiB as the host's"),
    Instance("inf2.8xlarge", 1, 2, 32, 128, 32, 1.96786, 0.850, "The sample prints the devices' 32 GiB as the host's"),
    Instance("inf2.24xlarge", 6, 12, 96, 384, 192, 6.49063, 2.804, "The sample prints the devices' 192 GiB"),
    Instance("inf2.48xlarge", 12, 24, 192, 768, 384, 12.98127, 5.608, "The sample prints the devices' 384 GiB"),
    Instance("trn1.2xlarge", 1, 2, 8, 32, 32, 1.34375, 0.512),
    Instance("trn1.32xlarge", 16, 32, 128, 512, 512, 21.50, 8.197),
    Instance("trn1n.32xlarge", 16, 32, 128, 512, 512, 24.78),
    Instance("trn2.3xlarge", 1, 4, 12, 128, 96, None, None, f"{_TRN2}; vCPU and host memory are not confirmed"),
    Instance("trn2.48xlarge", 16, 64, 192, 2048, 1536, None, None, _TRN2),
    Instance(CPU, 0, 0, 0, 0, 0, None, None, "Any host without an accelerator: it has a price if one is set"),
)

#: All types by name.
INSTANCES: Mapping[str, Instance] = {instance.name: instance for instance in _ALL}
