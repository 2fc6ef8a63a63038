"""Compiling for NVIDIA GPUs: cast, trace on the GPU, freeze, verify through the engine's own backend.

Traces are made where they will run, as they record the device of every constant. Buckets share a file as far as a trace
holds for their length; each is captured as a CUDA graph when it is loaded, so their rows are fixed.
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from compile.cpu import COMPILER, QuestionAnswering, bucket_file, serialise, tensors, trace
from compile.folder import building, publish_artifact
from compile.ladder import Method, make_buckets
from compile.manifests import Toolchain, cpu_toolchain, make_manifest
from compile.model import save_tokenizer
from compile.plan import AUTO, FIRST_STEPS, Plan, Report
from compile.probes import Run
from compile.verify import TOLERANCES, Findings, holds, judge_answers, share_equal
from corelane.artifacts.manifest import (
    TOKENIZER_NAME,
    Artifact,
    BucketFile,
    Manifest,
    artifact_path,
)
from corelane.engine.backends.cuda import require_gpu
from corelane.engine.backends.protocol import Batch, Logits
from corelane.engine.buckets import Bucket
from corelane.errors import CompileFailed, SetupError
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
    steps = FIRST_STEPS + len(plan.ladder)
    module = cast(plan.reference, dtype)
    method = Method(
        make=lambda batch: trace(module, batch, _tensors(batch)),
        holds=lambda probe, traced: holds(probe, gpu_runner_of(traced), gpu_runner_of(module)),
        write=lambda traced, path: path.write_bytes(serialise(traced)),
        file=bucket_file,
        draft=lambda buckets: cuda_manifest(plan, dtype, aside, buckets, []),
    )

    def say(bucket: Bucket, position: int) -> None:
        report(f"compiling {bucket} in {dtype} for cuda", FIRST_STEPS + position, steps)

    with building(settings.artifact_root, weight_bytes(plan, dtype)) as aside:
        save_tokenizer(plan.model, aside / TOKENIZER_NAME)
        made, findings = make_buckets(plan, method, aside, say)
        judge_answers(share_equal(findings), TOLERANCES[dtype].answers_equal, dtype)
        artifact = publish_artifact(aside, destination, cuda_manifest(plan, dtype, aside, made, findings))
    report("done", steps, steps)
    return artifact


def cuda_manifest(
    plan: Plan, dtype: GpuDtype, folder: Path, buckets: Sequence[BucketFile], findings: Sequence[Findings]
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


def _tensors(batch: Batch) -> tuple[Any, ...]:
    return tuple(each.to("cuda") for each in tensors(batch))
