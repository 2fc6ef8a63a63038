"""Compiling for the CPU: cast, trace, freeze, serialise.

The only file that makes TorchScript: torch 2.13 marks it as deprecated (it works, and Neuron's trace yields it too),
so its warnings are silenced here, for these calls alone. A trace records one run; whether it holds for other inputs is
for ``verify`` to find out.
"""

import copy
import inspect
import io
import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from compile.attention import PRODUCTS, offer_products
from compile.int8 import quantise
from compile.model import LoadedModel
from compile.packing import pack_linears, packs
from corelane.engine.backends.cpu import torchscript_warnings_silenced
from corelane.engine.backends.protocol import Batch, Logits
from corelane.engine.buckets import Bucket
from corelane.errors import CompileFailed

Dtype = Literal["fp32", "bf16", "int8"]

#: A dtype in TorchScript, or int8 in the other format: what ``auto`` chooses among.
Way = Literal["fp32", "bf16", "int8", "openvino int8"]

COMPILER = "torch.jit.trace"

#: The faster attention for each dtype: torch's fused one, but for bf16, where plain products were 10–20 % faster.
ATTENTION: dict[Dtype, str] = {"fp32": "sdpa", "bf16": PRODUCTS, "int8": "sdpa"}


class QuestionAnswering(nn.Module):
    """A network as the engine calls it: three int64 arrays in, (start_logits, end_logits) out, both fp32.

    The third, token types, is taken and left alone where the network knows none.
    """

    def __init__(self, network: Any, passes_token_types: bool) -> None:
        super().__init__()
        self.network = network
        self.passes_token_types = passes_token_types

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, each rows × length."""
        types = {"token_type_ids": token_type_ids} if self.passes_token_types else {}
        outputs = self.network(input_ids=input_ids, attention_mask=attention_mask, **types)
        return outputs.start_logits.float(), outputs.end_logits.float()


def dtype_of(way: Way) -> Dtype:
    """What a way computes in."""
    return "int8" if way == "openvino int8" else way


def wrap(model: LoadedModel) -> QuestionAnswering:
    """The eager fp32 network behind the engine's interface: the reference for everything compiled."""
    accepts = "token_type_ids" in inspect.signature(model.network.forward).parameters
    return QuestionAnswering(model.network, model.spec.uses_token_types and accepts).eval()


def choose_attention(network: Any, dtype: Dtype) -> str:
    """The attention a network is compiled with; not every architecture takes another than its own."""
    attention = ATTENTION[dtype]
    needed = "_supports_attention_backend" if attention == PRODUCTS else "_supports_sdpa"
    return attention if getattr(network, needed, False) else "eager"


def cast(reference: QuestionAnswering, dtype: Dtype) -> QuestionAnswering:
    """A copy of the reference that computes in ``dtype``."""
    network = quantise(reference.network) if dtype == "int8" else copy.deepcopy(reference.network)
    if dtype == "bf16":
        network = network.to(torch.bfloat16)
    offer_products()
    network.set_attn_implementation(choose_attention(network, dtype))
    return QuestionAnswering(network, reference.passes_token_types).eval()


def trace(module: nn.Module, example: Batch, inputs: tuple[Tensor, ...] | None = None) -> Any:
    """TorchScript of the module for the example's shape; raises CompileFailed if torch cannot record it.

    ``inputs`` are the example's tensors where they have to lie elsewhere than on the CPU.
    """
    try:
        with torchscript_warnings_silenced(), warnings.catch_warnings(), torch.no_grad():
            warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
            warnings.filterwarnings("ignore", message="`is_gradient_checkpointing`", category=FutureWarning)
            return torch.jit.freeze(torch.jit.trace(module, inputs or tensors(example), check_trace=False))
    except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise CompileFailed(f"bucket {example.bucket} cannot be traced: {reason}") from error


def compile_trace(traced: Any, dtype: Dtype) -> Any:
    """What is written to a file: the trace, or a copy that packs its weights once it is settled."""
    if not packs(dtype):
        return traced
    with torchscript_warnings_silenced():
        return pack_linears(torch.jit.load(io.BytesIO(serialise(traced))).eval())


def serialise(scripted: Any) -> bytes:
    """The bytes of a file."""
    stream = io.BytesIO()
    with torchscript_warnings_silenced():
        torch.jit.save(scripted, stream)
    return stream.getvalue()


def runner_of(module: Any) -> Callable[[Batch], Logits]:
    """Run a module, eager or compiled, without a backend."""

    def run(batch: Batch) -> Logits:
        with torch.inference_mode():
            start, end = module(*tensors(batch))
        return Logits(start.numpy(), end.numpy())

    return run


def tensors(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """The batch as the network's arguments, in order."""
    arrays = (batch.input_ids, batch.attention_mask, batch.token_type_ids)
    ids, mask, types = (torch.from_numpy(np.ascontiguousarray(array)) for array in arrays)
    return ids, mask, types


def bucket_file(bucket: Bucket) -> str:
    """The name of the file traced for a bucket; longer buckets may share it."""
    return f"bs{bucket.rows}-len{bucket.length}.pt"


def weight_bytes(model: LoadedModel, dtype: Dtype) -> int:
    """About what a file takes on disk."""
    size = {"fp32": 4, "bf16": 2, "int8": 4}[dtype]
    return int(sum(parameter.numel() for parameter in model.network.parameters())) * size
