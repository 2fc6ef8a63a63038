"""Compile for the CPU: cast, trace, freeze, serialise.

Only this file makes TorchScript. torch 2.13 marks it as deprecated (it works, and Neuron's trace makes it too), so its
warnings are silenced here, for these calls alone. A trace records one run; ``verify`` finds out whether it holds for
other inputs.
"""

import io
import warnings
from typing import Any, Literal

import torch
from torch import Tensor, nn

from compile.model.adapt import describe
from compile.model.reference import TaskNetwork, tensors
from compile.torch.attention import PRODUCTS, offer_products
from compile.torch.head import cast_body, unpack_head
from compile.torch.packing import PACKED, PLAIN, pack_linears, packs
from compile.torch.reshaping import change_layers, rows_of
from corelane.engine.backends.cpu import torchscript_warnings_silenced
from corelane.engine.backends.protocol import WindowBatch
from corelane.errors import CompileFailed, first_line, last_line

CpuDtype = Literal["fp32", "bf16"]

COMPILER = "torch.jit.trace"

#: Bytes of a weight in a file, where they are not 4.
BYTES_PER_WEIGHT = {"bf16": 2}

#: The faster attention for each dtype: torch's fused one, except for bf16, where plain products were 10–20 % faster.
ATTENTION: dict[CpuDtype, str] = {"fp32": "sdpa", "bf16": PRODUCTS}


def choose_attention(network: Any, dtype: CpuDtype) -> str:
    """Return the attention to compile a network with; some architectures accept only their own."""
    attention = ATTENTION[dtype]
    needed = "_supports_attention_backend" if attention == PRODUCTS else "_supports_sdpa"
    return attention if getattr(network, needed, False) else "eager"


def compiler_args(network: Any, dtype: CpuDtype) -> list[str]:
    """Return how a network is compiled, as the manifest records it."""
    arguments = [f"attention={choose_attention(network, dtype)}", PACKED if packs(dtype) else PLAIN, rows_of(network)]
    return arguments + describe(network)


def cast(reference: TaskNetwork, dtype: CpuDtype) -> TaskNetwork:
    """Return a copy of the reference that computes in ``dtype``."""
    offer_products()
    network = change_layers(reference.network, choose_attention(reference.network, dtype))
    if dtype == "bf16":
        cast_body(network, torch.bfloat16)
    unpack_head(network)
    return reference.with_network(network)


def trace(module: nn.Module, example: WindowBatch, device: str = "cpu") -> Any:
    """Return the module as TorchScript for the example's shape; raises CompileFailed if torch cannot record it.

    A trace records the device of every constant, so it is made on the device where it will run.
    """
    inputs: tuple[Tensor, ...] = tensors(example, device)
    try:
        with torchscript_warnings_silenced(), warnings.catch_warnings(), torch.no_grad():
            warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
            warnings.filterwarnings("ignore", message="`is_gradient_checkpointing`", category=FutureWarning)
            return torch.jit.freeze(torch.jit.trace(module, inputs, check_trace=False))
    except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError) as error:
        raise CompileFailed(f"bucket {example.bucket} cannot be traced: {last_line(error)}") from error


def compile_trace(traced: Any, dtype: CpuDtype) -> Any:
    """Return the trace to write to a file; if the dtype is packed, a copy that packs its weights when loaded."""
    if not packs(dtype):
        return traced
    with torchscript_warnings_silenced():
        return pack_linears(torch.jit.load(io.BytesIO(serialise(traced))).eval())


def serialise(scripted: Any) -> bytes:
    """Return the bytes of a TorchScript file; raises CompileFailed if the network has calls that it cannot hold."""
    stream = io.BytesIO()
    try:
        with torchscript_warnings_silenced():
            torch.jit.save(scripted, stream)
    except RuntimeError as error:
        raise CompileFailed(f"the network cannot be written as TorchScript: {first_line(error)}") from error
    return stream.getvalue()
