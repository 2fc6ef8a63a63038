"""Choose the name, the model and the shapes, for every target, before the first bucket is compiled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from compile.model.loading import SourceModel, check_lengths, load_model
from compile.model.probes import check_runs
from compile.model.reference import TaskNetwork, official_run, wrap
from compile.model.source import find_source
from corelane.artifacts.manifest import MODEL_NAME, artifact_path, model_name
from corelane.engine.backends.protocol import Pass
from corelane.engine.buckets import AUTO_BUCKETS, Bucket, fitting_buckets, parse_buckets
from corelane.errors import CompileFailed

#: Reports progress: the current step in words, the steps done, and the total number of steps.
Report = Callable[[str, int, int], None]

#: Reports progress of a build whose total is known: the current step in words, and the steps done.
Step = Callable[[str, int], None]

#: Steps before the first bucket: loading, and the trial.
FIRST_STEPS = 2


@dataclass(frozen=True)
class BuildPlan:
    """A loaded model, the name it is served under, and the buckets to compile."""

    name: str
    model: SourceModel
    reference: TaskNetwork
    ladder: Sequence[Bucket]

    @property
    def run_eager(self) -> Pass:
        """The official eager network, as a function."""
        return official_run(self.model, self.reference)

    def destination(self, root: Path, target: str, cpu_kind: str = "") -> Path:
        """Return the place of the artifact below the root."""
        return artifact_path(root, self.name, self.model.source.version, target, cpu_kind)


def make_plan(
    source: str,
    *,
    buckets: str,
    name: str | None,
    report: Report,
    target: str,
    lone_rows: bool,
    task: str | None,
) -> BuildPlan:
    """Load the model and check that it runs and suits the buckets; raises CompileFailed or ModelRefused.

    ``lone_rows`` asks for a ladder with buckets of one row too.
    """
    given = None if buckets == AUTO_BUCKETS else parse_buckets(buckets, fixed_rows=target != "cpu")
    name = model_name(source) if name is None else name
    if not MODEL_NAME.fullmatch(name):
        raise CompileFailed(f"{name!r} is not a model name: take small letters, digits, `.`, `_` and `-`")
    report(f"loading {source}", 0, FIRST_STEPS + len(given or fitting_buckets(None, fixed_rows=lone_rows)))
    model = load_model(find_source(source, task=task, report=report))
    limits = [most for most in (model.max_positions, model.task.longest_rows) if most is not None]
    fitting = fitting_buckets(min(limits, default=None), fixed_rows=lone_rows, short_texts=model.task.short_texts)
    plan = BuildPlan(name, model, wrap(model), given or fitting)
    check_lengths(model, plan.ladder)
    check_runs(model, plan.run_eager, plan.ladder[0])
    return plan
