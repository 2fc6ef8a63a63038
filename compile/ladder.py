"""Build an artifact bucket by bucket in this process: compile, write, verify from the file, time, publish.

Each bucket is verified through the engine's own backend before the next one is compiled. A trace mostly holds for any
length, so buckets share a file as far as it does: a worker then holds the weights once. An artifact of the same
version and target is replaced at the end, in one step; after a failure it stays as it was.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from compile.manifests import NO_LOSS, Toolchain, bucket_name, make_bucket, make_manifest, with_measures
from compile.model.evaluation import F1Loss
from compile.model.loading import save_tokenizer
from compile.model.probes import Probe, make_probe
from compile.model.reference import Run
from compile.model.timing import median_seconds
from compile.plan import FIRST_STEPS, BuildPlan, Report
from compile.publish import building, publish_artifact
from compile.verify import Comparison, compare, judge, judge_answers, share_equal
from corelane.artifacts.manifest import TOKENIZER_NAME, Artifact, BucketFile, Manifest
from corelane.engine.backends.protocol import Batch, open_backend
from corelane.engine.buckets import Bucket
from corelane.errors import CompileFailed, EngineError


@dataclass(frozen=True, slots=True)
class Method:
    """How the buckets of one artifact are made and judged.

    ``make`` compiles the network for a batch. ``holds`` tells whether the result is also the network at another
    bucket's probe. ``write`` puts it into a file and returns the bytes; ``file`` names that file. ``least_equal`` is
    the share of sample answers that must be equal. ``evaluate`` measures the loss of F1 and may raise Disagreement.
    ``fixed_rows`` says that a batch must fill its bucket. ``cpu_kind`` names the folder of an artifact that lies beside
    those for other CPU kinds.
    """

    label: str
    toolchain: Toolchain
    bytes_per_weight: int
    least_equal: float
    make: Callable[[Batch], Any]
    holds: Callable[[Probe, Any], bool]
    write: Callable[[Any, Path], int]
    file: Callable[[Bucket], str] = bucket_name
    fixed_rows: bool = False
    cpu_kind: str = ""
    evaluate: Callable[[Run], F1Loss] | None = None


def build_ladder(plan: BuildPlan, method: Method, root: Path, report: Report) -> Artifact:
    """Build the whole ladder by one method; raises CompileFailed, or Disagreement at the first that fails to agree."""
    made_by, steps = method.toolchain, FIRST_STEPS + len(plan.ladder)
    with building(root, plan.model.weights * method.bytes_per_weight) as aside:
        save_tokenizer(plan.model, aside / TOKENIZER_NAME)
        made, compared = _make_buckets(plan, method, aside, report)
        judge_answers(share_equal(compared), method.least_equal, made_by.dtype)
        loss = NO_LOSS
        if method.evaluate is not None:
            report(f"comparing answers in {method.label}", steps, steps)
            with opened(make_manifest(plan, made_by, aside, made), aside) as run:
                loss = method.evaluate(run)
        manifest = make_manifest(plan, made_by, aside, made, compared, loss)
        artifact = publish_artifact(aside, plan.destination(root, made_by.target, method.cpu_kind), manifest)
    report("done", steps, steps)
    return artifact


@contextmanager
def opened(manifest: Manifest, folder: Path) -> Iterator[Run]:
    """Load an artifact as a worker would, for the block; the engine's errors become CompileFailed."""
    backend = open_backend(manifest.target)
    try:
        loaded = backend.load(Artifact(path=folder, manifest=manifest))
        yield partial(backend.run, loaded)
        backend.unload(loaded)
    except EngineError as error:
        raise CompileFailed(f"the compiled model does not run: {error.detail}") from error


def _make_buckets(
    plan: BuildPlan, method: Method, aside: Path, report: Report
) -> tuple[list[BucketFile], list[Comparison]]:
    made: list[BucketFile] = []
    comparisons: list[Comparison] = []
    compiled: Any = None
    with ExitStack() as stack:
        run: Run | None = None
        for position, bucket in enumerate(plan.ladder, FIRST_STEPS):
            report(f"compiling {bucket} in {method.label}", position, FIRST_STEPS + len(plan.ladder))
            probe = make_probe(plan.model, bucket, plan.run_eager)
            if compiled is not None and method.holds(probe, compiled):
                file = make_bucket(bucket, made[-1].file, made[-1].bytes, compile_s=0.0)
            else:
                stack.close()
                started = time.monotonic()
                compiled, run = method.make(probe.batches[0]), None
                name = method.file(bucket)
                size = method.write(compiled, aside / name)
                file = make_bucket(bucket, name, size, time.monotonic() - started)
            if run is None or method.toolchain.target != "cpu":
                stack.close()
                run = stack.enter_context(_opened_file(plan, method, aside, file, plan.ladder[len(made) :]))
            file, compared = _verify(file, probe, run, method)
            made.append(file)
            comparisons.append(compared)
    return made, comparisons


def _opened_file(
    plan: BuildPlan, method: Method, aside: Path, file: BucketFile, left: Sequence[Bucket]
) -> AbstractContextManager[Run]:
    """Load a bucket's file; on the CPU once, for every bucket ``left`` that it may come to serve."""
    buckets = left if method.toolchain.target == "cpu" else left[:1]
    files = [make_bucket(bucket, file.file, file.bytes, compile_s=0.0) for bucket in buckets]
    return opened(make_manifest(plan, method.toolchain, aside, files), aside)


def _verify(file: BucketFile, probe: Probe, run: Run, method: Method) -> tuple[BucketFile, Comparison]:
    """Compare a bucket, loaded from its file, with the eager network, and time it."""
    dtype = method.toolchain.dtype
    compared = compare(probe, run, dtype, fewer_rows=not method.fixed_rows)
    judge(compared, dtype, f"bucket {file.rows}x{file.length}")
    seconds = median_seconds({"batch": partial(run, probe.batches[0])})["batch"]
    return with_measures(file, compared, seconds), compared
