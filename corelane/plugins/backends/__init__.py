"""The backends plugin: NVIDIA GPUs (target ``cuda``), and OpenVINO's int8 for CPUs (format ``openvino``)."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from corelane.plugin import Plugin

if TYPE_CHECKING:
    from corelane.cli.checks import DoctorCheck
    from corelane.engine.backends.added import AddedFormat, AddedTarget
    from corelane.settings import Settings


class BackendsPlugin(Plugin):
    """One target and one format, each with what runs it and what compiles for it."""

    name = "backends"

    def targets(self) -> "Iterable[AddedTarget]":
        """Return NVIDIA GPUs."""
        from corelane.plugins.backends.cuda import CudaTarget

        return (CudaTarget(),)

    def formats(self) -> "Iterable[AddedFormat]":
        """Return OpenVINO's graphs."""
        from corelane.plugins.backends.openvino import OpenVinoFormat

        return (OpenVinoFormat(),)

    def checks(self) -> "Iterable[Callable[[Settings], DoctorCheck]]":
        """Return whether OpenVINO is installed."""
        from corelane.plugins.backends.openvino.doctor import check_openvino

        return (check_openvino,)


plugin = BackendsPlugin()
