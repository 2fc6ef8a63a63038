"""The accelerators there are targets for, and what the two Neuron families call things. Pure."""

from dataclasses import dataclass
from typing import Literal

Package = Literal["torch_neuronx", "torch_neuron"]


@dataclass(frozen=True, slots=True)
class Chip:
    """One target: the package that traces for it, its compiler, and how many cores one device has."""

    target: Literal["inf1", "inf2", "trn1", "trn2"]
    package: Package
    compiler: Literal["neuronx-cc", "neuron-cc"]
    cores_per_device: int

    @property
    def pipelines(self) -> bool:
        """Whether one model can be laid over several cores."""
        return self.package == "torch_neuron"


#: trn2 as it comes, with two physical cores to a logical one.
CHIPS: dict[str, Chip] = {
    chip.target: chip
    for chip in (
        Chip("inf1", "torch_neuron", "neuron-cc", 4),
        Chip("inf2", "torch_neuronx", "neuronx-cc", 2),
        Chip("trn1", "torch_neuronx", "neuronx-cc", 2),
        Chip("trn2", "torch_neuronx", "neuronx-cc", 4),
    )
}
