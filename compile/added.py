"""What a plugin gives so that models are compiled for its targets and to its formats (``engine/backends/added.py``)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from compile.model.evaluation import EvalSet
from compile.model.reference import Run
from corelane.artifacts.manifest import Format

if TYPE_CHECKING:
    from compile.ladder import Method
    from compile.plan import BuildPlan
    from compile.trial import Way


class TargetCompiler(Protocol):
    """Compiles for a target that a plugin adds."""

    def check(self, dtype: str) -> str:
        """Return the dtype to compile in, which may be given as ``auto``; raises CompileFailed if none can be here."""
        ...

    def method(self, plan: "BuildPlan", dtype: str) -> "Method":
        """Return how to compile in a dtype that ``check`` returned."""
        ...


@dataclass(frozen=True, slots=True)
class FormatGraph:
    """A network in another format, for batches of any shape; ``write`` makes its files and returns their bytes.

    ``compiler``, ``arguments`` and ``tools`` stand in the manifest.
    """

    format: Format
    run: Callable[[], Run]
    write: Callable[[Path], int]
    file: str
    compiler: str
    arguments: list[str]
    extra_files: tuple[str, ...] = ()
    tools: dict[str, str] = field(default_factory=dict)


class FormatCompiler(Protocol):
    """Compiles to a format that a plugin adds. It is one more way to compile for the CPU."""

    #: The way, whose last word is the dtype; and how many times as fast as the best before it ``auto`` wants it.
    way: "Way"
    least_gain: float

    def check(self, dtype: str) -> None:
        """Raise CompileFailed if it has no such dtype, SetupError if its library is not installed."""
        ...

    def make_graph(self, plan: "BuildPlan", eval_set: EvalSet | None) -> FormatGraph:
        """Convert the network by the questions of an eval set, or by the samples; raises CompileFailed."""
        ...
