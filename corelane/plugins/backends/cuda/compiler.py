"""Compile for NVIDIA GPUs: cast and trace on the GPU, where the trace will run.

The engine captures each bucket as a CUDA graph when it loads the bucket, so the number of rows is fixed.
"""

import copy
from typing import Any, Literal, cast

import torch

from compile.ladder import Method, build_ladder
from compile.manifests import Toolchain, host_tools
from compile.model.adapt import describe
from compile.model.reference import TaskNetwork, runner_of
from compile.plan import BuildPlan, Report
from compile.plugin import TargetOptions
from compile.torch.cpu import COMPILER, serialise, trace
from compile.torch.head import cast_body
from compile.verify import TOLERANCES, holds
from corelane.artifacts.manifest import Artifact
from corelane.errors import CompileFailed, SetupError
from corelane.plugins.backends.cuda.backend import require_gpu
from corelane.settings import Settings

GpuDtype = Literal["bf16", "fp16", "fp32"]

GPU_DTYPES: dict[GpuDtype, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


class CudaCompiler:
    """Compiles for the GPU of this machine."""

    lone_rows = takes_options = False

    def check(self, dtype: str, options: TargetOptions) -> str:  # noqa: ARG002  # it takes none
        """Return the dtype to compile in; raises CompileFailed if nothing can be compiled for a GPU here."""
        choose_dtype(dtype, has_bf16=True)
        try:
            require_gpu()
        except SetupError as error:
            raise CompileFailed(f"target cuda is compiled where a GPU is: {error.detail}") from None
        return choose_dtype(dtype, torch.cuda.is_bf16_supported())

    def build(
        self,
        plan: BuildPlan,
        dtype: str,
        options: TargetOptions,  # noqa: ARG002  # it takes none
        settings: Settings,
        report: Report,
    ) -> Artifact:
        """Compile, verify and publish."""
        return build_ladder(plan, self.method(plan, dtype), settings.artifact_root, report)

    def verify(self, name: str, settings: Settings, report: Report, python: str | None) -> Artifact:  # noqa: ARG002
        """Raise CompileFailed: nothing is compiled for a GPU where there is none."""
        raise CompileFailed("artifacts for cuda are verified when they are compiled")

    def method(self, plan: BuildPlan, dtype: str) -> Method:
        """Return how to compile for the GPU."""
        made_in = cast(GpuDtype, dtype)
        module = cast_to_gpu(plan.reference, made_in)
        arguments = [f"attention={fused_or_eager(plan.model.network)}", *describe(plan.model.network)]
        tools = host_tools() | {"cuda": str(torch.version.cuda), "gpu": torch.cuda.get_device_name(0)}
        return Method(
            label=f"{dtype} for cuda",
            toolchain=Toolchain("cuda", made_in, COMPILER, arguments, tools),
            bytes_per_weight=GPU_DTYPES[made_in].itemsize,
            least_equal=TOLERANCES[made_in].equal,
            make=lambda batch: trace(module, batch, "cuda"),
            holds=lambda probe, traced: holds(probe, runner_of(traced, "cuda"), runner_of(module, "cuda")),
            write=lambda traced, path: path.write_bytes(serialise(traced)),
            fixed_rows=True,
        )


def choose_dtype(wanted: str, has_bf16: bool) -> GpuDtype:
    """Return the dtype to compile in. ``auto`` is bf16, which has the range of fp32, or fp16 on GPUs without bf16."""
    if wanted == "auto":
        return "bf16" if has_bf16 else "fp16"
    for dtype in GPU_DTYPES:
        if dtype == wanted:
            return dtype
    raise CompileFailed(f"{wanted!r} is not a dtype of target cuda; choose auto, {', '.join(GPU_DTYPES)}")


def cast_to_gpu(reference: TaskNetwork, dtype: GpuDtype) -> TaskNetwork:
    """Return a copy of the reference on the GPU that computes in ``dtype``, with fused attention if there is one."""
    network = copy.deepcopy(reference.network).to("cuda")
    cast_body(network, GPU_DTYPES[dtype])
    network.set_attn_implementation(fused_or_eager(network))
    return reference.with_network(network)


def fused_or_eager(network: Any) -> str:
    """Return the attention to compile a network with: fused, or eager if the architecture has no fused one."""
    return "sdpa" if getattr(network, "_supports_sdpa", False) else "eager"
