"""Targets ``inf1``, ``inf2``, ``trn1``, ``trn2`` and ``trn3``: cores of AWS Neuron chips."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from corelane.engine.backends.plugin import AddedTarget, CoreDevice, CoresFound, TargetCore
from corelane.errors import SetupError
from corelane.plugins.backends.neuron.devices import TOOLS, find_tool

if TYPE_CHECKING:
    from corelane.engine.backends.protocol import Backend
    from corelane.settings import Settings


class NeuronTarget(AddedTarget):
    """One kind of chip."""

    #: Longer than the runtime takes to claim its core: workers of one device that start at the same moment may find
    #: each other's cores busy.
    stagger_s = 2.0

    def __init__(self, chip: str) -> None:
        self.name = chip

    def cores(self, settings: "Settings") -> Sequence[TargetCore]:
        """Return the cores, or the groups of neighbours that the models need."""
        from corelane.plugins.backends.neuron.cores import find_cores

        return find_cores(self.name, settings)

    def open(self, settings: "Settings") -> "Backend":
        """Open the backend for the cores that NEURON_RT_VISIBLE_CORES names."""
        from corelane.plugins.backends.neuron.backend import NeuronBackend
        from corelane.plugins.backends.settings import BackendsFields

        fields = settings.of(BackendsFields)
        return NeuronBackend(self.name, fields.device_memory_bytes, fields.neuron_python)

    def device(self) -> CoreDevice:
        """Return the cores of this process as neuron-monitor reports them."""
        from corelane.plugins.backends.neuron.devices import neuron_environment
        from corelane.plugins.backends.neuron.reports import NeuronDevice

        return NeuronDevice(neuron_environment())

    def describe(self, settings: "Settings") -> CoresFound:
        """Return the cores that workers take, what keeps them from working, and which of AWS' tools are missing."""
        from corelane.plugins.backends.neuron.chips import CHIPS
        from corelane.plugins.backends.neuron.compiling.children import Children
        from corelane.plugins.backends.settings import BackendsFields

        python = settings.of(BackendsFields).neuron_python if self.name == "inf1" else sys.executable
        try:
            cores = self.cores(settings)
            Children(python, settings.environment()).probe(CHIPS[self.name])
        except SetupError as error:
            return CoresFound(error.detail, "see docs/targets.md, and what `neuron-ls` lists", can_serve=False)
        found = f"{len(cores)} workers, on Neuron cores "
        found += ", ".join(core.environment["NEURON_RT_VISIBLE_CORES"] for core in cores)
        if find_tool("neuron-monitor") is not None:
            return CoresFound(found)
        found += "; their utilisation and memory will not be known"
        return CoresFound(found, f"install aws-neuronx-tools: neuron-monitor on PATH, or in {TOOLS}")
