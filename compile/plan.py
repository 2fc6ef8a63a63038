"""What is decided before the first bucket is compiled: the name, the shapes, and the dtypes worth trying.

Whatever can be refused is refused here, before minutes are spent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from compile.cpu import Dtype, QuestionAnswering, wrap
from compile.exam import Exam
from compile.model import LoadedModel, check_lengths, load_model
from compile.neuron.options import NeuronOptions, make_recipes
from compile.source import find_source
from compile.trial import rank_dtypes, run_trial
from corelane.artifacts import MODEL_NAME, model_name
from corelane.engine.buckets import Bucket, parse_buckets
from corelane.engine.neuron_chips import CHIPS
from corelane.errors import CompileFailed
from corelane.settings import Settings

#: Told what is being done now, how many steps are done, and how many there are in all.
Report = Callable[[str, int, int], None]

AUTO = "auto"

#: Steps before the first bucket: loading, and the trial.
FIRST_STEPS = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """A loaded model and how to compile it; ``dtypes`` come best first, ``speeds`` only from a trial.

    For a Neuron target both are empty: how to compile for one is its recipes' matter.
    """

    name: str
    model: LoadedModel
    reference: QuestionAnswering
    ladder: Sequence[Bucket]
    dtypes: Sequence[Dtype]
    speeds: Mapping[Dtype, float]
    automatic: bool
    exam: Exam | None = None


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
) -> Plan:
    """Check what was asked, load the model, and, for the CPU, hold a trial if the dtype is ``auto``."""
    _check_target(target, dtype, neuron)
    wanted = _read_dtype(dtype) if target == "cpu" else None
    ladder = parse_buckets(buckets)
    name = _check_name(model_name(source) if name is None else name)
    steps = FIRST_STEPS + len(ladder)
    report(f"loading {source}", 0, steps)
    model = load_model(find_source(source, settings.models_dir))
    check_lengths(model, ladder)
    reference = wrap(model)
    if target != "cpu":
        return Plan(name, model, reference, ladder, (), {}, automatic=dtype == AUTO)
    if wanted is not None:
        return Plan(name, model, reference, ladder, (wanted,), {}, automatic=False, exam=exam)
    report("trying dtypes", 1, steps)
    trial = run_trial(model, reference, ladder[-1].length, examined=exam is not None)
    return Plan(name, model, reference, ladder, rank_dtypes(trial), trial.speeds, automatic=True, exam=exam)


def _check_target(target: str, dtype: str, neuron: NeuronOptions) -> None:
    if target in CHIPS:
        make_recipes(CHIPS[target], dtype, neuron, parameters=0)
    elif target not in ("cpu", "cuda"):
        raise CompileFailed(f"nothing compiles for target {target!r}; this build has: cpu, {', '.join(CHIPS)}, cuda")
    elif neuron.named:
        raise CompileFailed(f"{', '.join(neuron.named)} is for Neuron targets ({', '.join(CHIPS)}), not for {target}")


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
