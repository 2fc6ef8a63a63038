"""Compiling for NVIDIA GPUs: cast, trace on the GPU, freeze, verify through the engine's own backend.

Traces are made where they will run, as they record the device of every constant. Buckets share a file as far as a trace
holds for their length; each is captured as a CUDA graph when it is loaded, so their rows are fixed.
"""

import copy
import time
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from compile.cpu import COMPILER, QuestionAnswering, bucket_file, runner_of, serialise, tensors, trace
from compile.folder import building, publish
from compile.manifests import Toolchain, cpu_toolchain, make_manifest
from compile.model import save_tokenizer
from compile.plan import AUTO, FIRST_STEPS, Plan, Report
from compile.probes import Probe, Run, make_probe
from compile.timing import median_seconds
from compile.verify import TOLERANCES, Findings, holds, inspect, judge, judge_answers, share_equal
from corelane.artifacts import (
    MANIFEST_NAME,
    TOKENIZER_NAME,
    Artifact,
    BucketFile,
    Manifest,
    artifact_path,
    read_artifact,
)
from corelane.calibration import carry_calibration
from corelane.engine.backend import Batch, Logits, open_backend
from corelane.engine.buckets import Bucket
from corelane.engine.cuda import require_gpu
from corelane.errors import CompileFailed, EngineError, SetupError
from corelane.settings import Settings

GpuDtype = Literal["bf16", "fp16", "fp32"]

DTYPES: dict[GpuDtype, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def choose_dtype(wanted: str, has_bf16: bool) -> GpuDtype:
    """The dtype to compile in; ``auto`` is bf16, whose range is that of fp32, and fp16 on GPUs without it."""
    if wanted == AUTO:
        return "bf16" if has_bf16 else "fp16"
    for dtype in DTYPES:
        if dtype == wanted:
            return dtype
    raise CompileFailed(f"{wanted!r} is not a dtype of target cuda; choose {AUTO}, {', '.join(DTYPES)}")


def check_cuda(dtype: str) -> GpuDtype:
    """The dtype, or why nothing can be compiled for a GPU here, as CompileFailed."""
    chosen = choose_dtype(dtype, has_bf16=True)
    try:
        require_gpu()
    except SetupError as error:
        raise CompileFailed(f"target cuda is compiled where a GPU is: {error.detail}") from None
    return choose_dtype(dtype, torch.cuda.is_bf16_supported()) if dtype == AUTO else chosen


def build_for_cuda(plan: Plan, dtype: GpuDtype, settings: Settings, report: Report) -> Artifact:
    """Compile the whole ladder, verify and publish it; raises CompileFailed and keeps nothing."""
    destination = artifact_path(settings.artifact_root, plan.name, plan.model.source.version, "cuda")
    module = cast(plan.reference, dtype)
    made: list[BucketFile] = []
    findings: list[Findings] = []
    traced: Any = None
    steps = FIRST_STEPS + len(plan.ladder)
    with building(settings.artifact_root, weight_bytes(plan, dtype)) as aside:
        save_tokenizer(plan.model, aside / TOKENIZER_NAME)
        for position, bucket in enumerate(plan.ladder):
            report(f"compiling {bucket} in {dtype} for cuda", FIRST_STEPS + position, steps)
            probe = make_probe(plan.model, bucket, runner_of(plan.reference))
            if traced is not None and holds(probe, gpu_runner_of(traced), gpu_runner_of(module)):
                compiled = made[-1].model_copy(update={"rows": bucket.rows, "length": bucket.length, "compile_s": 0.0})
            else:
                traced, compiled = _compile_bucket(module, bucket, probe, aside)
            compiled, found = _verify_bucket(plan, dtype, compiled, probe, aside)
            made.append(compiled)
            findings.append(found)
        judge_answers(share_equal(findings), TOLERANCES[dtype].answers_equal, dtype)
        manifest = cuda_manifest(plan, dtype, aside, made, findings)
        (aside / MANIFEST_NAME).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
        carry_calibration(destination, aside)
        publish(aside, destination)
    report("done", steps, steps)
    return read_artifact(destination)


def cuda_manifest(
    plan: Plan, dtype: GpuDtype, folder: Path, buckets: list[BucketFile], findings: list[Findings]
) -> Manifest:
    """The manifest of these buckets for GPUs; without findings it is a draft to load them by."""
    tools = {name: version for name, version in cpu_toolchain(plan, "fp32").tools.items() if name != "cpu"}
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"
    arguments = [f"attention={attention_of(plan.reference.network)}"]
    toolchain = Toolchain("cuda", dtype, COMPILER, arguments, tools | {"cuda": str(torch.version.cuda), "gpu": gpu})
    return make_manifest(plan, toolchain, folder, buckets, findings).model_copy(update={"flexible_rows": False})


def cast(reference: QuestionAnswering, dtype: GpuDtype) -> QuestionAnswering:
    """A copy of the reference on the GPU that computes in ``dtype``, with fused attention where the network has it."""
    network = copy.deepcopy(reference.network).to(device="cuda", dtype=DTYPES[dtype])
    network.set_attn_implementation(attention_of(network))
    return QuestionAnswering(network, reference.passes_token_types).eval()


def attention_of(network: Any) -> str:
    """The attention a network is compiled with; not every architecture has the fused one."""
    return "sdpa" if getattr(network, "_supports_sdpa", False) else "eager"


def gpu_runner_of(module: Any) -> Run:
    """Run a module that lies on the GPU, without a backend."""

    def run(batch: Batch) -> Logits:
        with torch.inference_mode():
            start, end = module(*_tensors(batch))
        return Logits(start.float().cpu().numpy(), end.float().cpu().numpy())

    return run


def weight_bytes(plan: Plan, dtype: GpuDtype) -> int:
    """About what a file takes on disk."""
    return int(sum(each.numel() for each in plan.model.network.parameters())) * DTYPES[dtype].itemsize


def _compile_bucket(module: QuestionAnswering, bucket: Bucket, probe: Probe, aside: Path) -> tuple[Any, BucketFile]:
    """Trace and write one bucket: the trace, and its record, in which what is measured of it stays 0."""
    started = time.monotonic()
    traced = trace(module, probe.batches[0], _tensors(probe.batches[0]))
    content = serialise(traced)
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


def _verify_bucket(
    plan: Plan, dtype: GpuDtype, compiled: BucketFile, probe: Probe, aside: Path
) -> tuple[BucketFile, Findings]:
    """Load one bucket as a worker would, compare it with the eager network, and time it."""
    backend = open_backend("cuda")
    try:
        loaded = backend.load(Artifact(path=aside, manifest=cuda_manifest(plan, dtype, aside, [compiled], [])))
        run = partial(backend.run, loaded)
        findings = inspect(probe, run, dtype)
        judge(findings, dtype, f"bucket {compiled.rows}x{compiled.length}")
        seconds = median_seconds({"batch": partial(run, probe.batches[0])})["batch"]
        backend.unload(loaded)
    except EngineError as error:
        raise CompileFailed(f"the compiled model does not run: {error.detail}") from error
    measured = {"batch_ms": round(seconds * 1000, 3), "max_logit_error": findings.logit_error}
    return compiled.model_copy(update=measured), findings


def _tensors(batch: Batch) -> tuple[Any, ...]:
    return tuple(each.to("cuda") for each in tensors(batch))
