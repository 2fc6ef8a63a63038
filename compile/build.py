"""From a model's name to an artifact on disk: plan, compile each bucket, verify it, publish.

A trace mostly holds for any length, so buckets share a file as far as it does: a worker then carries the weights once.
Every bucket is verified from its file, through the engine's own backend, before the next one is compiled. An artifact
of the same version and target is replaced at the end, in one step; on any failure it stays as it was.
"""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

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
from compile.exam import MOST_LOST, Exam, Loss, hand_out, mark
from compile.folder import building, publish
from compile.manifests import cpu_toolchain, make_manifest
from compile.model import quiet_transformers, save_tokenizer
from compile.neuron.build import build_for_neuron
from compile.neuron.chips import CHIPS
from compile.neuron.options import NeuronOptions
from compile.openvino import GRAPH_FILE, Graph, write
from compile.plan import AUTO, FIRST_STEPS, Plan, Report, make_plan
from compile.probes import Probe, make_probe
from compile.timing import median_seconds, one_thread
from compile.trial import answers_needed
from compile.verify import Disagreement, Findings, holds, inspect, judge, judge_answers, judge_f1, share_equal
from corelane.artifacts import MANIFEST_NAME, TOKENIZER_NAME, Artifact, BucketFile, artifact_path, read_artifact
from corelane.calibration import carry_calibration
from corelane.engine.backend import open_backend
from corelane.engine.buckets import DEFAULT_BUCKETS, Bucket
from corelane.errors import CompileFailed, EngineError
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
    dtype, graph = dtype_of(way), plan.graph if way == "openvino int8" else None
    module = plan.reference if graph else cast(plan.reference, dtype)
    made: list[BucketFile] = []
    findings: list[Findings] = []
    traced: Any = None
    with building(root, weight_bytes(plan.model, dtype)) as aside:
        save_tokenizer(plan.model, aside / TOKENIZER_NAME)
        for position, bucket in enumerate(plan.ladder):
            report(f"compiling {bucket} in {way}", FIRST_STEPS + position, FIRST_STEPS + len(plan.ladder))
            probe = make_probe(plan.model, bucket, runner_of(plan.reference))
            holds_here = made and (graph or holds(probe, runner_of(traced), runner_of(module)))
            if holds_here:
                shared = {"rows": bucket.rows, "length": bucket.length, "compile_s": 0.0}
                compiled = made[-1].model_copy(update=shared)
            elif graph:
                compiled = _write_graph(graph, bucket, aside)
            else:
                traced, compiled = _compile_bucket(module, dtype, bucket, probe, aside)
            compiled, found = _verify_bucket(plan, way, compiled, probe, aside)
            made.append(compiled)
            findings.append(found)
        judge_answers(share_equal(findings), answers_needed(dtype, plan.automatic, plan.exam is not None), dtype)
        report(f"comparing answers in {way}", FIRST_STEPS + len(plan.ladder), FIRST_STEPS + len(plan.ladder))
        loss = _examine(plan, way, made, aside)
        if plan.automatic and dtype == "int8":
            judge_f1(loss.points, MOST_LOST, dtype)
        manifest = make_manifest(plan, cpu_toolchain(plan, way), aside, made, findings, loss)
        (aside / MANIFEST_NAME).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
        carry_calibration(destination, aside)
        publish(aside, destination)
    report("done", FIRST_STEPS + len(plan.ladder), FIRST_STEPS + len(plan.ladder))
    return read_artifact(destination)


def _compile_bucket(
    module: QuestionAnswering, dtype: Dtype, bucket: Bucket, probe: Probe, aside: Path
) -> tuple[Any, BucketFile]:
    """Trace and write one bucket: the trace, and its record, in which what is measured of it stays 0."""
    started = time.monotonic()
    traced = trace(module, probe.batches[0])
    content = serialise(compile_trace(traced, dtype))
    (aside / bucket_file(bucket)).write_bytes(content)
    return traced, BucketFile(
        rows=bucket.rows,
        length=bucket.length,
        file=bucket_file(bucket),
        bytes=len(content),
        compile_s=round(time.monotonic() - started, 2),
        batch_ms=0,
        max_logit_error=0,
    )


def _write_graph(graph: Graph, bucket: Bucket, aside: Path) -> BucketFile:
    """Write the graph, which holds for every bucket: its record, in which what is measured of it stays 0."""
    started = time.monotonic()
    size = write(graph.model, aside / GRAPH_FILE)
    return BucketFile(
        rows=bucket.rows,
        length=bucket.length,
        file=GRAPH_FILE,
        bytes=size,
        compile_s=round(time.monotonic() - started, 2),
        batch_ms=0,
        max_logit_error=0,
    )


def _examine(plan: Plan, way: Way, made: Sequence[BucketFile], aside: Path) -> Loss:
    """Ask the whole artifact, as a worker would load it, what the eager network is asked."""
    paper = hand_out(plan.model, plan.ladder, runner_of(plan.reference), plan.exam)
    backend = open_backend("cpu")
    try:
        loaded = backend.load(Artifact(path=aside, manifest=make_manifest(plan, cpu_toolchain(plan, way), aside, made)))
        loss = mark(paper, partial(backend.run, loaded))
        backend.unload(loaded)
    except EngineError as error:
        raise CompileFailed(f"the compiled model does not run: {error.detail}") from error
    return loss


def _verify_bucket(
    plan: Plan, way: Way, compiled: BucketFile, probe: Probe, aside: Path
) -> tuple[BucketFile, Findings]:
    """Load one bucket as a worker would, compare it with the eager network, and time it."""
    backend, dtype = open_backend("cpu"), dtype_of(way)
    try:
        loaded = backend.load(
            Artifact(path=aside, manifest=make_manifest(plan, cpu_toolchain(plan, way), aside, [compiled]))
        )
        run = partial(backend.run, loaded)
        findings = inspect(probe, run, dtype)
        judge(findings, dtype, f"bucket {compiled.rows}x{compiled.length}")
        seconds = median_seconds({"batch": partial(run, probe.batches[0])})["batch"]
        backend.unload(loaded)
    except EngineError as error:
        raise CompileFailed(f"the compiled model does not run: {error.detail}") from error
    measured = {"batch_ms": round(seconds * 1000, 2), "max_logit_error": findings.logit_error}
    return compiled.model_copy(update=measured), findings
