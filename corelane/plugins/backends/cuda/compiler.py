"""Compile for NVIDIA GPUs: cast and trace on the GPU, where the trace will run.

The engine captures each bucket as a CUDA graph when it loads it, so the rows of a bucket are fixed.
"""

import copy
from typing import Any, Literal

import torch

from compile.model.reference import QuestionAnswering
from compile.torch.head import cast_body
from corelane.plugins.backends.cuda.backend import require_gpu
from corelane.errors import CompileFailed, SetupError

GpuDtype = Literal["bf16", "fp16", "fp32"]

GPU_DTYPES: dict[GpuDtype, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def choose_dtype(wanted: str, has_bf16: bool) -> GpuDtype:
    """Return the dtype to compile in; ``auto`` is bf16, whose range is that of fp32, or fp16 on GPUs without it."""
    if wanted == "auto":
        return "bf16" if has_bf16 else "fp16"
    for dtype in GPU_DTYPES:
        if dtype == wanted:
            return dtype
    raise CompileFailed(f"{wanted!r} is not a dtype of target cuda; choose auto, {', '.join(GPU_DTYPES)}")


def check_cuda(dtype: str) -> GpuDtype:
    """Return the dtype; raises CompileFailed if nothing can be compiled for a GPU here."""
    choose_dtype(dtype, has_bf16=True)
    try:
        require_gpu()
    except SetupError as error:
        raise CompileFailed(f"target cuda is compiled where a GPU is: {error.detail}") from None
    return choose_dtype(dtype, torch.cuda.is_bf16_supported())


def cuda_tools() -> dict[str, str]:
    """Return the version of CUDA and the name of the GPU."""
    return {"cuda": str(torch.version.cuda), "gpu": torch.cuda.get_device_name(0)}


def cast_to_gpu(reference: QuestionAnswering, dtype: GpuDtype) -> QuestionAnswering:
    """Return a copy of the reference on the GPU that computes in ``dtype``, with fused attention if there is one."""
    network = copy.deepcopy(reference.network).to("cuda")
    cast_body(network, GPU_DTYPES[dtype])
    network.set_attn_implementation(fused_or_eager(network))
    return QuestionAnswering(network, reference.passes_token_types).eval()


def fused_or_eager(network: Any) -> str:
    """Return the attention to compile a network with; some architectures have no fused one."""
    return "sdpa" if getattr(network, "_supports_sdpa", False) else "eager"
