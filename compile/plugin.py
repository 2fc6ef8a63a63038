"""The door of the compiler: what a plugin provides so that Corelane compiles for its targets and to its formats."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from corelane.plugin import Plugin, installed

if TYPE_CHECKING:
    from compile.ladder import Method
    from compile.plan import BuildPlan
    from compile.tasks.evaluation import EvalSet
    from compile.trial import Way
    from corelane.artifacts.manifest import Format
    from corelane.engine.backends.protocol import Pass


class TargetCompiler(Protocol):
    """Compiles for a target that a plugin adds."""

    def check(self, dtype: str) -> str:
        """Return the dtype to compile in; ``dtype`` may be ``auto``. Raises CompileFailed if none works here."""
        ...

    def method(self, plan: "BuildPlan", dtype: str) -> "Method":
        """Return how to compile in a dtype that ``check`` returned."""
        ...


@dataclass(frozen=True, slots=True)
class FormatGraph:
    """A network in another format, for batches of any shape.

    ``write`` makes its files and returns their bytes. The manifest records ``compiler``, ``arguments`` and ``tools``.
    """

    format: "Format"
    run: "Callable[[], Pass]"
    write: Callable[[Path], int]
    file: str
    compiler: str
    arguments: list[str]
    extra_files: tuple[str, ...] = ()
    tools: dict[str, str] = field(default_factory=dict)


class FormatCompiler(Protocol):
    """Compiles for the CPU to a format that a plugin adds."""

    #: ``way`` ends with its dtype. ``auto`` takes it only if it is ``least_gain`` times as fast as the best one before.
    way: "Way"
    least_gain: float

    def check(self, dtype: str) -> None:
        """Raise CompileFailed if the format does not support this dtype, SetupError if its library is not installed."""
        ...

    def make_graph(self, plan: "BuildPlan", eval_set: "EvalSet | None") -> FormatGraph:
        """Convert the network, calibrated on an eval set's items or else on the samples; raises CompileFailed."""
        ...


class CompilePlugin(Plugin):
    """A plugin that compiles for targets or formats which it runs too (``corelane.engine.backends.plugin``)."""

    def target_compilers(self) -> Mapping[str, TargetCompiler]:
        """Return the compilers for its targets, by the target's name."""
        return {}

    def format_compilers(self) -> Mapping[str, FormatCompiler]:
        """Return the compilers to its formats, by the format's name."""
        return {}


def target_compilers() -> dict[str, TargetCompiler]:
    """Return the compilers for targets that the installed plugins add, by the target's name."""
    return {name: each for plugin in installed(CompilePlugin) for name, each in plugin.target_compilers().items()}


def format_compilers() -> dict[str, FormatCompiler]:
    """Return the compilers to formats that the installed plugins add, by the format's name."""
    return {name: each for plugin in installed(CompilePlugin) for name, each in plugin.format_compilers().items()}
