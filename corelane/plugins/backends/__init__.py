"""The backends plugin: NVIDIA GPUs (target ``cuda``), and OpenVINO's int8 for CPUs (format ``openvino``)."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from compile.plugin import CompilePlugin
from corelane.engine.backends.plugin import BackendPlugin

if TYPE_CHECKING:
    from compile.plugin import FormatCompiler, TargetCompiler
    from corelane.engine.backends.plugin import AddedFormat, AddedTarget


class BackendsPlugin(BackendPlugin, CompilePlugin):
    """One target and one format, each with a backend that runs it and a compiler."""

    name = "backends"

    def targets(self) -> "Iterable[AddedTarget]":
        """Return NVIDIA GPUs."""
        from corelane.plugins.backends.cuda import CudaTarget

        return (CudaTarget(),)

    def formats(self) -> "Iterable[AddedFormat]":
        """Return OpenVINO's graphs."""
        from corelane.plugins.backends.openvino import OpenVinoFormat

        return (OpenVinoFormat(),)

    def target_compilers(self) -> "Mapping[str, TargetCompiler]":
        """Return the compiler for NVIDIA GPUs."""
        from corelane.plugins.backends.cuda.compiler import CudaCompiler

        return {"cuda": CudaCompiler()}

    def format_compilers(self) -> "Mapping[str, FormatCompiler]":
        """Return the compiler to OpenVINO's graphs, which quantises models."""
        from corelane.plugins.backends.openvino.compiler import OpenVinoCompiler

        return {"openvino": OpenVinoCompiler()}


plugin = BackendsPlugin()
