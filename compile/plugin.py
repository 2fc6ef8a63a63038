"""The plugin interface of the compiler: what a plugin provides to compile for its targets and to its formats."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from corelane.plugin import Plugin, installed

if TYPE_CHECKING:
    from compile.plan import BuildPlan, Report
    from compile.tasks.evaluation import EvalSet
    from compile.trial import Dtype
    from corelane.artifacts.manifest import Artifact, Format
    from corelane.engine.backends.protocol import Pass
    from corelane.settings import Settings


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """The options of `corelane compile` that only a target's own compiler reads.

    ``python`` is the interpreter with the compiler's packages; None means the usual one.
    """

    compiler_args: str = ""
    pipeline_cores: int | None = None
    cpu_backend: bool = False
    report: bool = False
    jobs: int | None = None
    cache: bool = True
    python: str | None = None

    @property
    def named(self) -> list[str]:
        """The given options that only some compilers take, as a user types them."""
        given = {
            "--compiler-args": self.compiler_args,
            "--pipeline-cores": self.pipeline_cores,
            "--cpu-backend": self.cpu_backend,
            "--report": self.report,
        }
        return [name for name, value in given.items() if value]


class TargetCompiler(Protocol):
    """Compiles for a target that a plugin adds."""

    #: Whether the usual ladder also has buckets of one row.
    lone_rows: bool
    #: Whether the compiler takes the options that ``TargetOptions.named`` names.
    takes_options: bool

    def check(self, dtype: str, options: TargetOptions) -> str:
        """Return the dtype to compile in; ``dtype`` may be ``auto``. Raises CompileFailed if none works here."""
        ...

    def build(
        self, plan: "BuildPlan", dtype: str, options: TargetOptions, settings: "Settings", report: "Report"
    ) -> "Artifact":
        """Compile in a dtype that ``check`` returned, verify and publish; raises CompileFailed or SetupError."""
        ...

    def verify(self, name: str, settings: "Settings", report: "Report", python: str | None) -> "Artifact":
        """Verify, on this machine's device, an artifact that was compiled without a device; raises CompileFailed."""
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

    #: The dtypes of the format. ``auto`` takes one only if it is this many times as fast as the best way before.
    least_gains: "Mapping[Dtype, float]"

    def make_graph(self, plan: "BuildPlan", dtype: "Dtype", eval_set: "EvalSet | None") -> FormatGraph:
        """Convert the network; in int8 by an eval set's items or else by the samples. Raises CompileFailed."""
        ...


class CompilePlugin(Plugin):
    """A plugin that compiles for targets or formats which it runs too (``corelane.engine.backends.plugin``)."""

    def target_compilers(self) -> Mapping[str, TargetCompiler]:
        """Return the compilers for the plugin's targets, by the target's name."""
        return {}

    def format_compilers(self) -> Mapping[str, FormatCompiler]:
        """Return the compilers to the plugin's formats, by the format's name."""
        return {}


def target_compilers() -> dict[str, TargetCompiler]:
    """Return the compilers for targets that the installed plugins add, by the target's name."""
    return {name: each for plugin in installed(CompilePlugin) for name, each in plugin.target_compilers().items()}


def format_compilers() -> dict[str, FormatCompiler]:
    """Return the compilers to formats that the installed plugins add, by the format's name."""
    return {name: each for plugin in installed(CompilePlugin) for name, each in plugin.format_compilers().items()}
