"""What a plugin provides so that Corelane can compile for its targets and formats (``engine/backends/added.py``)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from compile.model.reference import Run
from compile.tasks.question_answering.evaluation import EvalSet
from corelane.artifacts.manifest import Format

if TYPE_CHECKING:
    from compile.ladder import Method
    from compile.plan import BuildPlan
    from compile.trial import Way


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

    format: Format
    run: Callable[[], Run]
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

    def make_graph(self, plan: "BuildPlan", eval_set: EvalSet | None) -> FormatGraph:
        """Convert the network, calibrated on an eval set's items or else on the samples; raises CompileFailed."""
        ...
