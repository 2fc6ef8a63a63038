"""Compile the buckets of one recipe in parallel, each in its own process, or fetch them from the cache."""

import os
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from compile.manifests import bucket_name, make_bucket
from compile.model.probes import Probe
from compile.plan import FIRST_STEPS, BuildPlan, Step
from compile.plugin import TargetOptions
from corelane.artifacts.manifest import BucketFile, Coverage, digest_file
from corelane.engine.backends.protocol import WindowBatch
from corelane.engine.buckets import Bucket
from corelane.errors import CompileFailed
from corelane.plugins.backends.neuron.compiling.cache import Cache, files_of, key_of
from corelane.plugins.backends.neuron.compiling.children import TRACER, Children, save_inputs
from corelane.plugins.backends.neuron.compiling.coverage import WHOLE, read_log
from corelane.plugins.backends.neuron.compiling.options import NeuronRecipe

#: Memory that one compiler may need: it took 14.75 GB for BERT-base at 16 x 1,024.
COMPILER_BYTES = 15 * 10**9

#: The variables of the environment that the compilers read, apart from their arguments.
VARIABLES = ("NEURON_CC_FLAGS", "NEURON_LOGICAL_NC_CONFIG", "NEURON_PLATFORM_TARGET_OVERRIDE")


@dataclass(frozen=True, slots=True)
class BucketJob:
    """What the buckets of one build share. Compiled files go to ``aside``, the compilers' inputs to ``scratch``."""

    plan: BuildPlan
    recipe: NeuronRecipe
    options: TargetOptions
    versions: dict[str, str]
    aside: Path
    scratch: Path
    logs: Path

    def spec(self, bucket: Bucket, probe: Probe, mode: str = "trace") -> dict[str, Any]:
        """Write the example inputs and return the request for a tracing process."""
        workdir = self.scratch / f"{mode}-{bucket}"
        (workdir / "compiler").mkdir(parents=True, exist_ok=True)
        save_inputs(workdir / "example.npz", padded(probe.batches[0]))
        return {
            "package": self.recipe.chip.package,
            "folder": str(self.plan.model.source.folder),
            "passes_token_types": self.plan.reference.passes_token_types,
            "loader": self.plan.model.task.loader,
            "outputs": list(self.plan.model.task.outputs),
            "weights": self.recipe.weights,
            "compiler_args": list(self.recipe.compiler_args),
            "cpu_backend": self.options.cpu_backend,
            "example": str(workdir / "example.npz"),
            "output": str(self.aside / bucket_name(bucket)),
            "workdir": str(workdir / "compiler"),
            "result": str(workdir / "result.json"),
        }

    @property
    def takes_cores(self) -> bool:
        """Whether tracing a bucket takes a core."""
        return self.recipe.chip.package == "torch_neuronx" and not self.options.cpu_backend

    def key(self, bucket: Bucket, environment: dict[str, str]) -> str:
        """Return a bucket's cache key: the model, the shape, the tools, their arguments, and our tracing code."""
        return key_of(
            {
                "source": self.plan.model.source.digest,
                "bucket": str(bucket),
                "target": self.recipe.chip.target,
                "weights": self.recipe.weights,
                "arguments": list(self.recipe.compiler_args),
                "cpu_backend": self.options.cpu_backend,
                "passes_token_types": self.plan.reference.passes_token_types,
                "outputs": [self.plan.model.task.loader, *self.plan.model.task.outputs],
                "versions": self.versions,
                "environment": {name: environment[name] for name in VARIABLES if name in environment},
                "tracer": digest_file(TRACER),
            }
        )


def compile_buckets(
    job: BucketJob, probes: Sequence[Probe], children: Children, cache: Cache | None, step: Step
) -> tuple[list[BucketFile], list[Coverage | None]]:
    """Compile every bucket, in the order of the ladder. The first failure stops the others."""
    ladder = job.plan.ladder
    if cache is not None:
        cache.drop_old()
    count = choose_jobs(job, children.environment)
    slots: SimpleQueue[int] = SimpleQueue()
    for slot in range(count):
        slots.put(slot)
    step(f"compiling {len(ladder)} buckets, {count} at a time", FIRST_STEPS)
    with ThreadPoolExecutor(count) as pool:
        futures = [
            pool.submit(_compile_bucket, job, bucket, probe, children, cache, slots)
            for bucket, probe in zip(ladder, probes, strict=True)
        ]
        try:
            _watch(futures, ladder, step)
        except BaseException:
            children.close()
            pool.shutdown(cancel_futures=True)
            raise
    results = [future.result() for future in futures]
    return [bucket for bucket, _ in results], [coverage for _, coverage in results]


def _watch(futures: Sequence[Future[Any]], ladder: Sequence[Bucket], step: Step) -> None:
    """Report each finished bucket; raises the first error."""
    waiting = dict(zip(futures, ladder, strict=True))
    while waiting:
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            future.result()
            del waiting[future]
        left = f", {', '.join(map(str, waiting.values()))} to go" if waiting else ""
        step(f"compiled {len(ladder) - len(waiting)} buckets{left}", FIRST_STEPS + len(ladder) - len(waiting))


def choose_jobs(job: BucketJob, environment: dict[str, str]) -> int:
    """Return how many compilers run at a time: as many as memory and CPUs allow, and cores if tracing takes one."""
    chip, ladder = job.recipe.chip, job.plan.ladder
    if job.takes_cores and "NEURON_RT_VISIBLE_CORES" in environment:
        return 1
    most = min(len(ladder), chip.logical_cores) if job.takes_cores else len(ladder)
    if job.options.jobs is not None:
        return max(1, min(most, job.options.jobs))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(most, len(os.sched_getaffinity(0)), memory // COMPILER_BYTES))


def _compile_bucket(
    job: BucketJob, bucket: Bucket, probe: Probe, children: Children, cache: Cache | None, slots: SimpleQueue[int]
) -> tuple[BucketFile, Coverage | None]:
    file = bucket_name(bucket)
    stem = Path(file).stem
    key = job.key(bucket, children.environment)
    record = None if cache is None else cache.fetch(key, job.aside, stem)
    if record is None:
        record = _trace(job, bucket, probe, children, slots)
        if cache is not None:
            cache.keep(key, job.aside, stem, record)
    coverage = None if record["coverage"] is None else Coverage.model_validate(record["coverage"])
    neffs = [path.name for path in files_of(job.aside, stem)[1:]]
    return make_bucket(bucket, file, (job.aside / file).stat().st_size, record["seconds"], neffs), coverage


def _trace(job: BucketJob, bucket: Bucket, probe: Probe, children: Children, slots: SimpleQueue[int]) -> dict[str, Any]:
    """Compile one bucket in its own process and return its record. If tracing takes a core, it gets its own core."""
    chip, log = job.recipe.chip, job.logs / f"{bucket}.log"
    slot = slots.get()
    named = not job.takes_cores or "NEURON_RT_VISIBLE_CORES" in children.environment
    variables = {} if named else {"NEURON_RT_VISIBLE_CORES": str(slot)}
    try:
        result = children.work("trace", job.spec(bucket, probe), chip, f"bucket {bucket}", log, variables)
    finally:
        slots.put(slot)
    coverage = WHOLE if chip.package == "torch_neuronx" else read_log(log.read_text("utf-8", errors="replace"))
    if coverage is not None and coverage.percent == 0:
        raise CompileFailed(f"bucket {bucket}: {chip.compiler} compiled no operator of the model; its log: {log}")
    return {
        "seconds": result["seconds"],
        "coverage": None if coverage is None else coverage.model_dump(mode="json"),
    }


def padded(batch: WindowBatch) -> WindowBatch:
    """Return the batch with at least one token of padding: a trace may drop a mask that is all ones."""
    if (batch.attention_mask == 0).any():
        return batch
    mask = batch.attention_mask.copy()
    mask[0, -1] = 0
    return WindowBatch(batch.bucket, batch.input_ids, mask, batch.token_type_ids)
