"""From a model's name to an artifact on disk: plan, compile each bucket, verify it, publish.

Every bucket is verified from its file, through the engine's own backend, before the next one is compiled. An artifact
of the same version and target is replaced at the end, in one step; on any failure it stays as it was.
"""

from functools import partial
from pathlib import Path

from compile.cpu import (
    Dtype,
    cast,
    compile_trace,
    runner_of,
    trace,
    weight_bytes,
)
from compile.cuda import build_for_cuda, check_cuda
from compile.exam import MOST_LOST, Exam, hand_out, mark
from compile.folder import building, publish_artifact
from compile.ladder import Method, make_buckets, opened
from compile.manifests import cpu_toolchain, make_manifest
from compile.model import quiet_transformers, save_tokenizer
from compile.neuron.build import build_for_neuron
from compile.neuron.options import NeuronOptions
from compile.plan import FIRST_STEPS, Plan, Report, make_plan
from compile.timing import one_thread
from compile.trial import answers_needed
from compile.verify import Disagreement, judge_answers, judge_f1, share_equal
from corelane.artifacts import TOKENIZER_NAME, Artifact, artifact_path
from corelane.engine.buckets import DEFAULT_BUCKETS, Bucket
from corelane.engine.neuron_chips import CHIPS
from corelane.settings import Settings


def _say_nothing(text: str, done: int, total: int) -> None:
    """The report of a build nobody watches."""


def build(
    source: str,
    *,
    settings: Settings,
    target: str = "cpu",
    buckets: str = DEFAULT_BUCKETS,
    dtype: str = "auto",
    name: str | None = None,
    neuron: NeuronOptions | None = None,
    report: Report = _say_nothing,
    exam: Exam | None = None,
) -> Artifact:
    """Compile, verify and publish; raises CompileFailed, or ModelRefused where the model is at fault.

    ``neuron`` are options that only Neuron targets take; ``exam`` are questions with known answers, by which the loss
    of F1 is measured instead of by the samples, on the CPU.
    """
    options = neuron or NeuronOptions()
    with quiet_transformers(), one_thread():
        gpu_dtype = check_cuda(dtype) if target == "cuda" else None
        plan = make_plan(
            source,
            settings=settings,
            target=target,
            buckets=buckets,
            dtype=gpu_dtype or dtype,
            name=name,
            neuron=options,
            report=report,
            exam=exam,
        )
        if target in CHIPS:
            return build_for_neuron(plan, CHIPS[target], dtype, options, settings, report)
        if gpu_dtype is not None:
            return build_for_cuda(plan, gpu_dtype, settings, report)
        for choice in plan.dtypes[:-1]:
            try:
                return _build(plan, choice, settings.artifact_root, report)
            except Disagreement:
                continue
        return _build(plan, plan.dtypes[-1], settings.artifact_root, report)


def _build(plan: Plan, dtype: Dtype, root: Path, report: Report) -> Artifact:
    """Compile the whole ladder in one dtype."""
    destination = artifact_path(root, plan.name, plan.model.source.version, "cpu")
    steps = FIRST_STEPS + len(plan.ladder)
    method = Method(
        module=cast(plan.reference, dtype),
        trace=trace,
        run_with=runner_of,
        finish=partial(compile_trace, dtype=dtype),
        draft=lambda buckets: make_manifest(plan, cpu_toolchain(plan, dtype), aside, buckets),
    )

    def say(bucket: Bucket, position: int) -> None:
        report(f"compiling {bucket} in {dtype}", FIRST_STEPS + position, steps)

    with building(root, weight_bytes(plan.model, dtype)) as aside:
        save_tokenizer(plan.model, aside / TOKENIZER_NAME)
        made, findings = make_buckets(plan, method, aside, say)
        judge_answers(share_equal(findings), answers_needed(dtype, plan.automatic, plan.exam is not None), dtype)
        report(f"comparing answers in {dtype}", steps, steps)
        paper = hand_out(plan.model, plan.ladder, runner_of(plan.reference), plan.exam)
        with opened(method.draft(made), aside) as run:
            loss = mark(paper, run)
        if plan.automatic and dtype == "int8":
            judge_f1(loss.points, MOST_LOST, dtype)
        artifact = publish_artifact(
            aside, destination, make_manifest(plan, cpu_toolchain(plan, dtype), aside, made, findings, loss)
        )
    report("done", steps, steps)
    return artifact
