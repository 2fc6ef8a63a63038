"""The Neuron chips that are targets: cores and memory of a device, and the names of the two families. Pure."""

from dataclasses import dataclass
from typing import Literal

#: Where AWS publishes the packages; PyPI's packages of these names are stubs.
PACKAGE_INDEX = "https://pip.repos.neuron.amazonaws.com"

#: Micro-code and runtime take this much of each physical core's memory, in bytes (AWS: 96 MB).
CORE_OVERHEAD_BYTES = 96 * 1000**2


@dataclass(frozen=True, slots=True)
class NeuronChip:
    """One target: its tracing package, its compiler, and the cores and memory of one device.

    ``cores`` are physical cores; ``logical`` is how many of them make one logical core by default.
    """

    target: Literal["inf1", "inf2", "trn1", "trn2", "trn3"]
    package: Literal["torch_neuronx", "torch_neuron"]
    compiler: Literal["neuronx-cc", "neuron-cc"]
    cores: int
    memory_bytes: int
    logical: int = 1

    @property
    def logical_cores(self) -> int:
        """Return the number of logical cores of a device. A worker, or a compiled file, takes one of them."""
        return self.cores // self.logical

    def core_bytes(self, logical: int) -> int:
        """Return the memory that models may take on a core made of ``logical`` physical cores."""
        return self.memory_bytes * logical // self.cores - logical * CORE_OVERHEAD_BYTES


#: Cores and memory are from AWS' architecture pages.
CHIPS: dict[str, NeuronChip] = {
    chip.target: chip
    for chip in (
        NeuronChip("inf1", "torch_neuron", "neuron-cc", 4, 8 * 1024**3),
        NeuronChip("inf2", "torch_neuronx", "neuronx-cc", 2, 32 * 1024**3),
        NeuronChip("trn1", "torch_neuronx", "neuronx-cc", 2, 32 * 1024**3),
        NeuronChip("trn2", "torch_neuronx", "neuronx-cc", 8, 96 * 1024**3, logical=2),
        NeuronChip("trn3", "torch_neuronx", "neuronx-cc", 8, 144 * 1024**3, logical=2),
    )
}
