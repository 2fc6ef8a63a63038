"""The buckets of a ladder, one after the other in this process: traced, written, verified from the file, timed.

A trace mostly holds for any length, so buckets share a file as far as it does: a worker then carries the weights once.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from compile.cpu import runner_of
from compile.plan import Plan
from compile.probes import Probe, Run, make_probe
from compile.timing import median_seconds
from compile.verify import Findings, inspect, judge
from corelane.artifacts.manifest import Artifact, BucketFile, Manifest
from corelane.engine.backends.protocol import Batch, open_backend
from corelane.engine.buckets import Bucket
from corelane.errors import CompileFailed, EngineError

Draft = Callable[[Sequence[BucketFile]], Manifest]


@dataclass(frozen=True, slots=True)
class Method:
    """How the buckets of one artifact are made.

    ``make`` records the network on a batch, or hands out what was made of it before; ``holds`` says whether what was
    made for one bucket is the network at another's probe too; ``write`` puts it into a file, whose bytes come back, and
    ``file`` names it; ``draft`` is a manifest to load unexamined buckets by.
    """

    make: Callable[[Batch], Any]
    holds: Callable[[Probe, Any], bool]
    write: Callable[[Any, Path], int]
    file: Callable[[Bucket], str]
    draft: Draft


def make_buckets(
    plan: Plan, method: Method, aside: Path, say: Callable[[Bucket, int], None]
) -> tuple[list[BucketFile], list[Findings]]:
    """Make every bucket of the plan's ladder below ``aside``; raises CompileFailed, or Disagreement at the first that
    is not the eager network. ``say`` hears of each, with its position.
    """
    made: list[BucketFile] = []
    findings: list[Findings] = []
    traced: Any = None
    for position, bucket in enumerate(plan.ladder):
        say(bucket, position)
        probe = make_probe(plan.model, bucket, runner_of(plan.reference))
        if traced is not None and method.holds(probe, traced):
            shared = {"rows": bucket.rows, "length": bucket.length, "compile_s": 0.0}
            compiled = made[-1].model_copy(update=shared)
        else:
            traced, compiled = _compile(method, bucket, probe, aside)
        compiled, found = _verify(method.draft([compiled]), probe, aside)
        made.append(compiled)
        findings.append(found)
    return made, findings


@contextmanager
def opened(manifest: Manifest, folder: Path) -> Iterator[Run]:
    """Buckets as a worker would load and run them; what the engine refuses or fails at is CompileFailed."""
    backend = open_backend(manifest.target)
    try:
        loaded = backend.load(Artifact(path=folder, manifest=manifest))
        yield partial(backend.run, loaded)
        backend.unload(loaded)
    except EngineError as error:
        raise CompileFailed(f"the compiled model does not run: {error.detail}") from error


def _compile(method: Method, bucket: Bucket, probe: Probe, aside: Path) -> tuple[Any, BucketFile]:
    """Make and write one bucket: what was made, and its record, in which what is measured of it stays 0."""
    started = time.monotonic()
    traced = method.make(probe.batches[0])
    name = method.file(bucket)
    size = method.write(traced, aside / name)
    return traced, BucketFile(
        rows=bucket.rows,
        length=bucket.length,
        file=name,
        bytes=size,
        compile_s=round(time.monotonic() - started, 2),
        batch_ms=0,
        max_logit_error=0,
    )


def _verify(draft: Manifest, probe: Probe, aside: Path) -> tuple[BucketFile, Findings]:
    """Compare the one bucket of a draft with the eager network, and time it."""
    [compiled] = draft.buckets
    with opened(draft, aside) as run:
        findings = inspect(probe, run, draft.dtype)
        judge(findings, draft.dtype, f"bucket {compiled.rows}x{compiled.length}")
        seconds = median_seconds({"batch": partial(run, probe.batches[0])})["batch"]
    measured = {"batch_ms": round(seconds * 1000, 3), "max_logit_error": findings.logit_error}
    return compiled.model_copy(update=measured), findings
