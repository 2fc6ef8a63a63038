"""From a model's name to an artifact on disk: plan, compile each bucket, verify it, publish.

Every bucket is verified from its file, through the engine's own backend, before the next one is compiled. An artifact
of the same version and target is replaced at the end, in one step; on any failure it stays as it was.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from compile.cpu import (
    Dtype,
    QuestionAnswering,
    Way,
    bucket_file,
    cast,
    compile_trace,
    dtype_of,
    runner_of,
    serialise,
    trace,
    weight_bytes,
)
from compile.cuda import build_for_cuda, check_cuda
from compile.exam import MOST_LOST, Exam, hand_out, mark
from compile.folder import building, publish_artifact
from compile.ladder import Draft, Method, make_buckets, opened
from compile.manifests import cpu_toolchain, make_manifest
from compile.model import quiet_transformers, save_tokenizer
from compile.neuron.build import build_for_neuron
from compile.neuron.options import NeuronOptions
from compile.openvino import GRAPH_FILE, Graph, write
from compile.plan import AUTO, FIRST_STEPS, Plan, Report, make_plan
from compile.timing import one_thread
from compile.trial import answers_needed
from compile.verify import Disagreement, holds, judge_answers, judge_f1, share_equal
from corelane.artifacts.manifest import TOKENIZER_NAME, Artifact, BucketFile, Manifest, artifact_path
from corelane.engine.backends.neuron.chips import CHIPS
from corelane.engine.buckets import AUTO_BUCKETS, Bucket
from corelane.settings import Settings


def _say_nothing(text: str, done: int, total: int) -> None:
    """The report of a build nobody watches."""


def build(
    source: str,
    *,
    settings: Settings,
    target: str = "cpu",
    buckets: str = AUTO_BUCKETS,
    dtype: str = "auto",
    name: str | None = None,
    neuron: NeuronOptions | None = None,
    report: Report = _say_nothing,
    exam: Exam | None = None,
    format: str = AUTO,
) -> Artifact:
    """Compile, verify and publish; raises CompileFailed, or ModelRefused where the model is at fault.

    ``neuron`` are options that only Neuron targets take; ``exam`` are questions with known answers, by which the loss
    of F1 is measured instead of by the samples, on the CPU. SetupError if a format's library is not installed.
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
            format=format,
        )
        if target in CHIPS:
            return build_for_neuron(plan, CHIPS[target], dtype, options, settings, report)
        if gpu_dtype is not None:
            return build_for_cuda(plan, gpu_dtype, settings, report)
        for choice in plan.ways[:-1]:
            try:
                return _build(plan, choice, settings.artifact_root, report)
            except Disagreement:
                continue
        return _build(plan, plan.ways[-1], settings.artifact_root, report)


def _build(plan: Plan, way: Way, root: Path, report: Report) -> Artifact:
    """Compile the whole ladder in one way."""
    destination = artifact_path(root, plan.name, plan.model.source.version, "cpu")
    steps = FIRST_STEPS + len(plan.ladder)
    dtype, graph = dtype_of(way), plan.graph if way == "openvino int8" else None

    def draft(buckets: Sequence[BucketFile]) -> Manifest:
        return make_manifest(plan, cpu_toolchain(plan, way), aside, buckets)

    def say(bucket: Bucket, position: int) -> None:
        report(f"compiling {bucket} in {way}", FIRST_STEPS + position, steps)

    method = _by_trace(cast(plan.reference, dtype), dtype, draft) if graph is None else _by_graph(graph, draft)
    with building(root, weight_bytes(plan.model, dtype)) as aside:
        save_tokenizer(plan.model, aside / TOKENIZER_NAME)
        made, findings = make_buckets(plan, method, aside, say)
        judge_answers(share_equal(findings), answers_needed(dtype, plan.automatic, plan.exam is not None), dtype)
        report(f"comparing answers in {way}", steps, steps)
        paper = hand_out(plan.model, plan.ladder, runner_of(plan.reference), plan.exam)
        with opened(draft(made), aside) as run:
            loss = mark(paper, run)
        if plan.automatic and dtype == "int8":
            judge_f1(loss.points, MOST_LOST, dtype)
        artifact = publish_artifact(
            aside, destination, make_manifest(plan, cpu_toolchain(plan, way), aside, made, findings, loss)
        )
    report("done", steps, steps)
    return artifact


def _by_trace(module: QuestionAnswering, dtype: Dtype, draft: Draft) -> Method:
    """TorchScript: a trace, made again at lengths for which it does not hold."""
    return Method(
        make=partial(trace, module),
        holds=lambda probe, traced: holds(probe, runner_of(traced), runner_of(module)),
        write=lambda traced, path: path.write_bytes(serialise(compile_trace(traced, dtype))),
        file=bucket_file,
        draft=draft,
    )


def _by_graph(graph: Graph, draft: Draft) -> Method:
    """OpenVINO: one graph, which holds for every length."""
    return Method(
        make=lambda _: graph,
        holds=lambda *_: True,
        write=lambda made, path: write(made.model, path),
        file=lambda _: GRAPH_FILE,
        draft=draft,
    )
