"""The door of the engine: what plugins add to it, which is targets of their own, and formats of artifacts for the CPU.

Core runs TorchScript on the CPU and on Neuron chips. It asks here for everything else. Importing this module is cheap:
a process finds its cores before it imports torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from corelane.engine.backends.neuron.chips import CHIPS
from corelane.errors import ArtifactRefused
from corelane.errors.extras import install_command
from corelane.plugin import Plugin, installed

if TYPE_CHECKING:
    from corelane.artifacts.manifest import Artifact
    from corelane.engine.backends.protocol import Backend, Pass

#: Targets whose cores are CPUs: one that computes, and one that gives empty results.
HOST_TARGETS = ("cpu", "null")

#: The format that core reads without a plugin.
TORCHSCRIPT = "torchscript"


class AddedTarget(ABC):
    """A target that a plugin adds. Each of its cores is a device with its own memory."""

    #: Its name in settings and manifests.
    name: str

    @abstractmethod
    def cores(self) -> Sequence[Mapping[str, str]]:
        """Return environment variables for each core of this machine, which make only its device visible to a process.

        Raises SetupError if there is no core. Torch is not imported yet.
        """

    @abstractmethod
    def open(self) -> "Backend":
        """Open the backend for the only device that this process sees; raises SetupError."""


class AddedFormat(ABC):
    """A format of artifacts for the CPU that a plugin adds. One process runs models of several formats."""

    #: Its name in manifests, and the extra that installs its library.
    name: str

    #: The package that reads it.
    library: str

    @property
    def is_installed(self) -> bool:
        """Return whether its library is installed here."""
        return find_spec(self.library) is not None

    @abstractmethod
    def open(self, artifact: "Artifact", file: str) -> "Pass":
        """Load a file with checked digests; raises ArtifactRefused, SetupError or the library's own errors."""


class BackendPlugin(Plugin):
    """A plugin that adds targets, or formats of artifacts for the CPU."""

    def targets(self) -> "Iterable[AddedTarget]":
        """Return the targets whose artifacts it runs."""
        return ()

    def formats(self) -> "Iterable[AddedFormat]":
        """Return its formats of artifacts for the CPU."""
        return ()


def added_targets() -> dict[str, AddedTarget]:
    """Return the targets that the installed plugins add, by name."""
    return {target.name: target for plugin in installed(BackendPlugin) for target in plugin.targets()}


def added_formats() -> dict[str, AddedFormat]:
    """Return the formats that the installed plugins add, by name."""
    return {format.name: format for plugin in installed(BackendPlugin) for format in plugin.formats()}


def all_targets() -> tuple[str, ...]:
    """Return the targets for which this installation compiles models and runs them."""
    return ("cpu", *CHIPS, *added_targets())


def format_of(artifact: "Artifact") -> AddedFormat:
    """Return the format of an artifact that is not TorchScript; raises ArtifactRefused if no plugin reads it."""
    name = artifact.manifest.format
    if (found := added_formats().get(name)) is None:
        raise ArtifactRefused(
            f"{artifact.path} is of format {name}, which no installed plugin reads: run `{install_command(name)}`, "
            "or compile the model again"
        )
    return found
