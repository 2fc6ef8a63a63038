"""The plugin interface of the engine: plugins add targets of their own, and formats of artifacts for the CPU.

Core runs TorchScript on the CPU. It asks here for everything else. Importing this module is cheap: a process finds its
cores before it imports torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from corelane.errors import ArtifactRefused, SetupError
from corelane.errors.extras import install_command
from corelane.plugin import Plugin, installed

if TYPE_CHECKING:
    from corelane.artifacts.manifest import Artifact
    from corelane.engine.backends.protocol import Backend, Pass
    from corelane.settings import Settings

#: Targets whose cores are CPUs: one that computes, and one that gives empty results.
HOST_TARGETS = ("cpu", "null")

#: The format that core reads without a plugin.
TORCHSCRIPT = "torchscript"


@dataclass(frozen=True, slots=True)
class TargetCore:
    """One core of a target: its number, and the variables that show a process no other core.

    Its worker is pinned to ``cpus``, if the device has CPUs near it.
    """

    index: int
    environment: Mapping[str, str]
    cpus: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class CoresFound:
    """What `corelane doctor` says of a target's cores here, and what to do if something is missing."""

    found: str
    advice: str = ""
    can_serve: bool = True


class CoreDevice(Protocol):
    """The device of one core."""

    def read(self) -> Mapping[str, Any]:
        """Return ``utilization``, ``host_vcpu``, ``runtime_vcpu``, ``memory_bytes`` and ``errors`` by kind.

        The first three are from 0 to 1. Figures that are not known are left out.
        """
        ...

    def close(self) -> None:
        """Stop reading the device."""
        return


class AddedTarget(ABC):
    """A target that a plugin adds. Each of its cores is a device, or a part of one, with its own memory."""

    #: The target's name in settings and manifests.
    name: str

    #: How far apart `corelane serve` starts the workers of its cores, in seconds.
    stagger_s = 0.0

    @abstractmethod
    def cores(self, settings: "Settings") -> Sequence[TargetCore]:
        """Return the cores of this machine, at least one; raises SetupError. Called before torch is imported."""

    @abstractmethod
    def open(self, settings: "Settings") -> "Backend":
        """Open the backend for the only core that this process sees; raises SetupError."""

    def device(self) -> CoreDevice | None:
        """Return the device of this process' core; None if only the memory that models hold is known."""
        return None

    def describe(self, settings: "Settings") -> CoresFound:
        """Return what was found of the target's cores on this machine."""
        try:
            return CoresFound(f"{len(self.cores(settings))} workers, one for each device of {self.name}")
        except SetupError as error:
            return CoresFound(error.detail, "docs/targets.md says what it needs", can_serve=False)


class AddedFormat(ABC):
    """A format of artifacts for the CPU that a plugin adds. One process runs models of several formats."""

    #: The format's name in manifests, and the name of the extra that installs the format's library.
    name: str

    #: The package that reads the format.
    library: str

    @property
    def is_installed(self) -> bool:
        """Return whether the format's library is installed here."""
        return find_spec(self.library) is not None

    @abstractmethod
    def open(self, artifact: "Artifact", file: str) -> "Pass":
        """Load a file with checked digests; raises ArtifactRefused, SetupError or the library's own errors."""


class BackendPlugin(Plugin):
    """A plugin that adds targets, or formats of artifacts for the CPU."""

    def targets(self) -> "Iterable[AddedTarget]":
        """Return the targets whose artifacts the plugin runs."""
        return ()

    def formats(self) -> "Iterable[AddedFormat]":
        """Return the plugin's formats of artifacts for the CPU."""
        return ()


def added_targets() -> dict[str, AddedTarget]:
    """Return the targets that the installed plugins add, by name."""
    return {target.name: target for plugin in installed(BackendPlugin) for target in plugin.targets()}


def added_formats() -> dict[str, AddedFormat]:
    """Return the formats that the installed plugins add, by name."""
    return {format.name: format for plugin in installed(BackendPlugin) for format in plugin.formats()}


def all_targets() -> tuple[str, ...]:
    """Return the targets for which this installation compiles models and runs them."""
    return ("cpu", *added_targets())


def format_of(artifact: "Artifact") -> AddedFormat:
    """Return the format of an artifact that is not TorchScript; raises ArtifactRefused if no plugin reads it."""
    name = artifact.manifest.format
    if (found := added_formats().get(name)) is None:
        raise ArtifactRefused(
            f"{artifact.path} is of format {name}, which no installed plugin reads: run `{install_command(name)}`, "
            "or compile the model again"
        )
    return found
