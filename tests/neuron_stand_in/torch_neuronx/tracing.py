"""Stand-in for torch_neuronx (inf2, trn1, trn2, trn3): the half that traces. See ../TRACING.md."""

import contextlib
import os
import warnings
from typing import Any

import compilers
import shells
import torch

from torch_neuronx import __version__

with contextlib.suppress(ImportError):
    import neuron_runtime

    neuron_runtime.install(__package__)

compilers.install_marks()
compilers.die_if_asked()

COMPILER_VERSION = "2.26.6360.0+standin"

NO_DEVICE = "Bad StatusOr access: INVALID_ARGUMENT: PJRT_Client_Create: error condition !(num_devices > 0) occurred"

CASTS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8_e4m3": torch.bfloat16}


def trace(
    func: Any,
    example_inputs: Any,
    *,
    input_output_aliases: Any = None,
    compiler_workdir: str | None = None,
    compiler_args: str | list[str] | None = None,
    partitioner_config: Any = None,
    inline_weights_to_neff: bool = True,
    cpu_backend: bool = False,
) -> Any:
    example = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    arguments = compilers.read_arguments(compiler_args)
    shapes = [list(tensor.shape) for tensor in example]
    target = compilers.value_of(arguments, "--target")
    if cpu_backend and target is None:
        raise RuntimeError("cpu_backend=True needs --target in compiler_args")
    if not cpu_backend and not compilers.has_device():
        raise RuntimeError(NO_DEVICE)
    traced = _trace(func, example, arguments)
    _warn_of_unused(traced, example)
    compilers.run_compiler("neuronx-cc", arguments, compiler_workdir, str(traced.graph).encode())
    marks = {"family": "torch_neuronx", "target": target or "inf2", "shapes": shapes, "pipeline_cores": 1}
    return compilers.mark(shells.make_shell(traced, example), marks)


def _trace(func: Any, example: tuple[torch.Tensor, ...], arguments: list[str]) -> Any:
    """TorchScript of the function, computing as the compiler's arguments say."""
    faulty = shells.WithoutMask(func) if os.environ.get("NEURON_STAND_IN_FAULT") == "drop-mask" else func
    cast = compilers.value_of(arguments, "--auto-cast") or "none"
    dtype = CASTS.get(compilers.value_of(arguments, "--auto-cast-type") or "bf16")
    casting: Any = contextlib.nullcontext()
    if cast != "none" and dtype is not None:
        casting = torch.autocast("cpu", dtype=dtype, cache_enabled=False)
    with casting:
        return torch.jit.trace(faulty, example, strict=False, check_trace=False)


def _warn_of_unused(traced: Any, example: tuple[torch.Tensor, ...]) -> None:
    inputs = list(traced.inlined_graph.inputs())[1:]
    for index, (value, tensor) in enumerate(zip(inputs, example, strict=True)):
        if not _reaches_output(traced.inlined_graph, value.debugName()):
            warnings.warn(
                "Received an input tensor that was unused. Tensor will be ignored. "
                f"(index={index}, shape={tensor.shape}, dtype={tensor.dtype})",
                UserWarning,
                stacklevel=3,
            )


def _reaches_output(graph: Any, name: str) -> bool:
    """Whether an input's values, not its shape alone, reach what is computed."""
    reached = {name}
    for node in graph.nodes():
        used = {value.debugName() for value in node.inputs()} & reached
        if used and node.kind() not in ("aten::size", "aten::ones_like", "aten::zeros_like", "prim::NumToTensor"):
            reached |= {value.debugName() for value in node.outputs()}
    return any(value.debugName() in reached for value in graph.return_node().inputs()) or any(
        value.debugName() in reached for output in graph.return_node().inputs() for value in output.node().inputs()
    )


def analyze(
    func: Any,
    example_inputs: Any,
    compiler_workdir: str | None = None,
    additional_ignored_ops: Any = (),
    max_workers: int = 4,
    is_hf_transformers: bool = False,
    cleanup: bool = False,
) -> dict[str, Any]:
    example = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    graph = torch.jit.trace(func, example, strict=False, check_trace=False).inlined_graph
    counts = compilers.count_operators(graph)
    return {
        "torch_neuronx_version": __version__,
        "neuronx_cc_version": COMPILER_VERSION,
        "support_percentage": "100.00%",
        "supported_operators": counts,
        "unsupported_operators": [],
    }
