"""The backends plugin: NVIDIA GPUs (target ``cuda``), and OpenVINO's int8 for CPUs (format ``openvino``)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from corelane.plugin import Plugin

if TYPE_CHECKING:
    from corelane.engine.backends.added import AddedFormat, AddedTarget


class BackendsPlugin(Plugin):
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


plugin = BackendsPlugin()
