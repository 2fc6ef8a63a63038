"""Build an artifact bucket by bucket in this process: compile, write, verify from the file, time, publish.

Most traces work for any length. Buckets for which one trace works share a file, so a worker holds the weights once.
Each bucket of a file is verified through the engine's own backend before the next file is made. An artifact of the same
version and target is replaced at the end, in one step; after a failure it stays as it was.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch

from compile.manifests import NO_LOSS, Toolchain, bucket_name, make_bucket, make_manifest, with_measures
from compile.model.loading import save_files
from compile.model.probes import Probe, make_probe
from compile.plan import FIRST_STEPS, BuildPlan, Report
from compile.publish import building, publish_artifact
from compile.tasks.evaluation import F1Loss
from compile.verify import BucketComparison, compare, judge, judge_results, share_equal
from corelane.artifacts.manifest import Artifact, BucketFile, Manifest
from corelane.engine.backends.protocol import Pass, WindowBatch
from corelane.engine.buckets import Bucket
from corelane.engine.runner import open_backend
from corelane.errors import CompileFailed, EngineError

#: Most buckets that are compared at a time: each needs memory for the passes of a large model.
MOST_PLACES = 4


@dataclass(frozen=True, slots=True)
class Method:
    """How the buckets of one artifact are made and judged.

    ``make`` compiles the network for a batch. ``holds`` tells whether the result also works for another bucket, tried
    on that bucket's probe. ``write`` puts the result into a file and returns its bytes; ``file`` names that file.
    ``least_equal`` is the share of the samples' results that must be equal. ``evaluate`` measures the loss of F1 and
    may raise Disagreement. ``fixed_rows`` says that a batch must fill its bucket. ``cpu_kind`` names the folder of an
    artifact next to those for other CPU kinds. ``threads`` says that several threads may run a loaded file.
    """

    label: str
    toolchain: Toolchain
    bytes_per_weight: int
    least_equal: float
    make: Callable[[WindowBatch], Any]
    holds: Callable[[Probe, Any], bool]
    write: Callable[[Any, Path], int]
    file: Callable[[Bucket], str] = bucket_name
    fixed_rows: bool = False
    cpu_kind: str = ""
    threads: bool = False
    evaluate: Callable[[Pass], F1Loss] | None = None


def build_ladder(plan: BuildPlan, method: Method, root: Path, report: Report) -> Artifact:
    """Build all buckets by one method; raises CompileFailed, or Disagreement at the first bucket that disagrees."""
    made_by, steps = method.toolchain, FIRST_STEPS + len(plan.ladder)
    with building(root, plan.model.weights * method.bytes_per_weight) as aside:
        save_files(plan.model, aside)
        made, compared = _make_buckets(plan, method, aside, report)
        judge_results(share_equal(compared), method.least_equal, made_by.dtype)
        loss = NO_LOSS
        if method.evaluate is not None:
            report(f"comparing results in {method.label}", steps, steps)
            with opened(make_manifest(plan, made_by, aside, made), aside) as run:
                loss = method.evaluate(run)
        manifest = make_manifest(plan, made_by, aside, made, compared, loss)
        place = plan.destination(root, made_by.target, method.cpu_kind)
        artifact = publish_artifact(aside, place, manifest, plan.model.source.folder)
    report("done", steps, steps)
    return artifact


@contextmanager
def opened(manifest: Manifest, folder: Path) -> Iterator[Pass]:
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
) -> tuple[list[BucketFile], list[BucketComparison]]:
    """Write one file for all neighbouring buckets that share a result, and verify it for each of them."""
    made: list[BucketFile] = []
    comparisons: list[BucketComparison] = []
    probes = [make_probe(plan.model, bucket, plan.run_eager) for bucket in plan.ladder]

    def say(number: int) -> None:
        what = f"compiling {plan.ladder[number]} in {method.label}"
        report(what, FIRST_STEPS + number, FIRST_STEPS + len(plan.ladder))

    while (first := len(made)) < len(plan.ladder):
        say(first)
        file, compiled = _write_file(method, plan.ladder[first], probes[first], aside)
        files = [file]
        for number in range(first + 1, first + 1 + _count_held(method, compiled, probes[first + 1 :])):
            say(number)
            files.append(make_bucket(plan.ladder[number], file.file, file.bytes, compile_s=0.0))
        compared = _compare_all(plan, method, aside, files, probes[first:])
        for each, one in zip(files, compared, strict=True):
            judge(one, method.toolchain.dtype, f"bucket {each.rows}x{each.length}")
            made.append(with_measures(each, one))
        comparisons += compared
    return made, comparisons


def _write_file(method: Method, bucket: Bucket, probe: Probe, aside: Path) -> tuple[BucketFile, Any]:
    """Compile for a bucket and write the file; return its record and what was compiled."""
    started = time.monotonic()
    compiled = method.make(probe.batches[0])
    name = method.file(bucket)
    size = method.write(compiled, aside / name)
    return make_bucket(bucket, name, size, time.monotonic() - started), compiled


def _count_held(method: Method, compiled: Any, probes: Sequence[Probe]) -> int:
    """Return for how many of the next buckets the compiled network works, up to the first for which it does not."""
    return sum(1 for _ in takewhile(lambda probe: method.holds(probe, compiled), probes))


def _compare_all(
    plan: BuildPlan, method: Method, aside: Path, files: Sequence[BucketFile], probes: Sequence[Probe]
) -> list[BucketComparison]:
    """Compare the buckets of one file, loaded once, with the eager network; several at a time if threads may."""
    made_by, places = method.toolchain, min(MOST_PLACES, len(os.sched_getaffinity(0))) if method.threads else 1
    with (
        opened(make_manifest(plan, made_by, aside, files), aside) as run,
        ThreadPoolExecutor(places, initializer=partial(torch.set_num_threads, 1)) as pool,
    ):
        compared = partial(compare, run=run, dtype=made_by.dtype, fewer_rows=not method.fixed_rows)
        return list(pool.map(compared, probes[: len(files)]))
