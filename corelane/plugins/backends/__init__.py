"""The backends plugin: AWS Neuron chips, NVIDIA GPUs (target ``cuda``), OpenVINO's graphs for CPUs (``openvino``)."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from compile.plugin import CompilePlugin
from corelane.engine.backends.plugin import BackendPlugin

if TYPE_CHECKING:
    from pydantic_settings import BaseSettings

    from compile.plugin import FormatCompiler, TargetCompiler
    from corelane.engine.backends.plugin import AddedFormat, AddedTarget


class BackendsPlugin(BackendPlugin, CompilePlugin):
    """Targets and a format, each with a backend that runs it and a compiler."""

    name = "backends"

    def settings(self) -> "type[BaseSettings]":
        """Return the fields of the plugin's settings."""
        from corelane.plugins.backends.settings import BackendsFields

        return BackendsFields

    def targets(self) -> "Iterable[AddedTarget]":
        """Return Neuron chips and NVIDIA GPUs."""
        from corelane.plugins.backends.cuda import CudaTarget
        from corelane.plugins.backends.neuron import NeuronTarget
        from corelane.plugins.backends.neuron.chips import CHIPS

        return (*map(NeuronTarget, CHIPS), CudaTarget())

    def formats(self) -> "Iterable[AddedFormat]":
        """Return OpenVINO's graphs."""
        from corelane.plugins.backends.openvino import OpenVinoFormat

        return (OpenVinoFormat(),)

    def target_compilers(self) -> "Mapping[str, TargetCompiler]":
        """Return the compilers for Neuron chips and NVIDIA GPUs."""
        from corelane.plugins.backends.cuda.compiler import CudaCompiler
        from corelane.plugins.backends.neuron.chips import CHIPS
        from corelane.plugins.backends.neuron.compiling.build import NeuronCompiler

        return {"cuda": CudaCompiler()} | {name: NeuronCompiler(chip) for name, chip in CHIPS.items()}

    def format_compilers(self) -> "Mapping[str, FormatCompiler]":
        """Return the compiler to OpenVINO's graphs."""
        from corelane.plugins.backends.openvino.compiler import OpenVinoCompiler

        return {"openvino": OpenVinoCompiler()}


plugin = BackendsPlugin()
