"""What is decided before the first bucket is compiled: the name, the shapes, and the dtypes worth trying.

Whatever can be refused is refused here, before minutes are spent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import get_args

from compile.cpu import Dtype, QuestionAnswering, Way, runner_of, wrap
from compile.exam import Exam
from compile.model import LoadedModel, check_lengths, load_model
from compile.neuron.options import NeuronOptions, make_recipes
from compile.openvino import Graph, make_graph
from compile.probes import fill_probe, run_unpadded
from compile.source import find_source
from compile.trial import rank_ways, run_trial
from compile.verify import FAMILIES
from corelane.artifacts.manifest import MODEL_NAME, Format, model_name
from corelane.engine.backends.neuron.chips import CHIPS
from corelane.engine.backends.openvino import require_openvino
from corelane.engine.buckets import AUTO_BUCKETS, Bucket, fitting_buckets, parse_buckets
from corelane.errors import CompileFailed, ModelRefused
from corelane.settings import Settings

#: Told what is being done now, how many steps are done, and how many there are in all.
Report = Callable[[str, int, int], None]

AUTO = "auto"

#: Steps before the first bucket: loading, and the trial.
FIRST_STEPS = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """A loaded model and how to compile it; ``ways`` come best first, ``speeds`` only from a trial.

    ``graph`` is there if OpenVINO's is among the ways.

    For a Neuron target both are empty: how to compile for one is its recipes' matter.
    """

    name: str
    model: LoadedModel
    reference: QuestionAnswering
    ladder: Sequence[Bucket]
    ways: Sequence[Way]
    speeds: Mapping[Way, float]
    automatic: bool
    exam: Exam | None = None
    graph: Graph | None = None


def make_plan(
    source: str,
    *,
    settings: Settings,
    target: str,
    buckets: str,
    dtype: str,
    name: str | None,
    neuron: NeuronOptions,
    report: Report,
    exam: Exam | None = None,
    format: str = AUTO,
) -> Plan:
    """Check what was asked, load the model, and, for the CPU, hold a trial if the dtype is ``auto``.

    OpenVINO takes part in the trial where it is installed and an exam is there to choose and to judge by.
    """
    _check_target(target, dtype, neuron)
    _check_format(target, dtype, format)
    wanted = _read_dtype(dtype) if target == "cpu" else None
    given = None if buckets == AUTO_BUCKETS else parse_buckets(buckets)
    name = _check_name(model_name(source) if name is None else name)
    report(f"loading {source}", 0, FIRST_STEPS + len(given or fitting_buckets(None)))
    model = load_model(find_source(source, settings.models_dir))
    ladder = given or fitting_buckets(model.max_positions)
    steps = FIRST_STEPS + len(ladder)
    check_lengths(model, ladder)
    reference = wrap(model)
    check_runs(model, reference, ladder)
    if target != "cpu":
        return Plan(name, model, reference, ladder, (), {}, automatic=dtype == AUTO)
    graph = None
    if format == "openvino" or (wanted is None and format == AUTO and exam is not None and find_spec("openvino")):
        report("quantising for OpenVINO", 1, steps)
        graph = make_graph(model, reference, ladder[-1].length, exam)
    if format == "openvino":
        return Plan(name, model, reference, ladder, ("openvino int8",), {}, automatic=False, exam=exam, graph=graph)
    if wanted is not None:
        return Plan(name, model, reference, ladder, (wanted,), {}, automatic=False, exam=exam)
    report("trying dtypes", 1, steps)
    trial = run_trial(model, reference, ladder[-1].length, examined=exam is not None, graph=graph)
    ways = rank_ways(trial)
    return Plan(name, model, reference, ladder, ways, trial.speeds, automatic=True, exam=exam, graph=graph)


def check_runs(model: LoadedModel, reference: QuestionAnswering, ladder: Sequence[Bucket]) -> None:
    """Run the eager network once; raises ModelRefused where it cannot be run on a question and a passage."""
    _, batches = fill_probe(model.tokenizer, model.spec, ladder[0])
    try:
        run_unpadded(runner_of(reference), batches[0])
    except Exception as error:
        # Any code may run here: each architecture brings its own, and fails in its own way.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelRefused(
            f"{model.source.label} does not run on a question and a passage as Corelane puts them together: {reason} "
            f"({FAMILIES})"
        ) from error


def _check_target(target: str, dtype: str, neuron: NeuronOptions) -> None:
    if target in CHIPS:
        make_recipes(CHIPS[target], dtype, neuron, parameters=0)
    elif target not in ("cpu", "cuda"):
        raise CompileFailed(f"nothing compiles for target {target!r}; this build has: cpu, {', '.join(CHIPS)}, cuda")
    elif neuron.named:
        raise CompileFailed(f"{', '.join(neuron.named)} is for Neuron targets ({', '.join(CHIPS)}), not for {target}")


def _check_format(target: str, dtype: str, format: str) -> None:
    if format not in (AUTO, *get_args(Format)):
        raise CompileFailed(f"{format!r} is not a format; choose {AUTO}, {', '.join(get_args(Format))}")
    if format != "openvino":
        return
    if target != "cpu":
        raise CompileFailed(f"format openvino is for target cpu, not for {target}")
    if dtype not in (AUTO, "int8"):
        raise CompileFailed(f"format openvino is int8: in {dtype} TorchScript is as fast; use --dtype int8")
    require_openvino()


def _read_dtype(text: str) -> Dtype | None:
    """The dtype, or None for ``auto``."""
    dtypes: dict[str, Dtype] = {dtype: dtype for dtype in get_args(Dtype)}
    if text != AUTO and text not in dtypes:
        raise CompileFailed(f"{text!r} is not a dtype; choose {AUTO}, {', '.join(dtypes)}")
    return dtypes.get(text)


def _check_name(name: str) -> str:
    if not MODEL_NAME.fullmatch(name):
        raise CompileFailed(f"{name!r} is not a model name: take small letters, digits, `.`, `_` and `-`")
    return name
