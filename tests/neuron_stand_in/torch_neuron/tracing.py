"""Stand-in for torch_neuron (inf1): the half that traces. See ../TRACING.md."""

import contextlib
import logging
import warnings
from typing import Any

import compilers
import shells
import torch

_plain_load = torch.jit.load

with contextlib.suppress(ImportError):
    import neuron_runtime

    neuron_runtime.install(__package__)

compilers.install_marks()
compilers.die_if_asked()


log = logging.getLogger("Neuron")

#: Keywords of the real one; what is none of them goes to torch.jit.trace.
KEYWORDS = {
    *("compiler_args", "compiler_timeout", "compiler_workdir", "subgraph_builder_function", "minimum_segment_size"),
    *("single_fusion_ratio_threshold", "fallback", "dynamic_batch_size", "optimizations", "separate_weights"),
}

#: Operators the real one leaves on the CPU.
ON_CPU = ("aten::embedding",)


class Blank:
    """A traced model where there is no device: shapes, and nothing in them."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def eval(self) -> "Blank":
        """Nothing to change."""
        return self

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        warnings.warn(
            "Tensor output are *** NOT CALCULATED *** during CPU execution and only indicate tensor shape",
            UserWarning,
            stacklevel=2,
        )
        return tuple(torch.zeros_like(output) for output in self._module(*inputs))


_load = torch.jit.load


def load(file: Any, *arguments: Any, **keywords: Any) -> Any:
    """torch.jit.load, as it is once this package was imported."""
    if compilers.has_device():
        return _load(file, *arguments, **keywords)
    return Blank(_plain_load(file, *arguments, **keywords))


torch.jit.load = load


def trace(model: Any, example_inputs: Any, **keywords: Any) -> Any:
    example = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    arguments = compilers.read_arguments(keywords.get("compiler_args"))
    shapes = [list(tensor.shape) for tensor in example]
    others = {name: value for name, value in keywords.items() if name not in KEYWORDS}
    casting: Any = contextlib.nullcontext()
    fast_math = compilers.value_of(arguments, "--fast-math") or "all"
    if fast_math != "none":
        dtype = torch.float16 if fast_math.endswith("fp16") and not fast_math.endswith("bf16") else torch.bfloat16
        casting = torch.autocast("cpu", dtype=dtype, cache_enabled=False)
    with casting:
        traced = torch.jit.trace(model, example, check_trace=False, **others)
    compilers.run_compiler("neuron-cc", arguments, keywords.get("compiler_workdir"), str(traced.graph).encode())
    _log_operators(traced)
    cores = int(compilers.value_of(arguments, "--neuroncore-pipeline-cores") or 1)
    marks = {"family": "torch_neuron", "target": "inf1", "shapes": shapes, "pipeline_cores": cores}
    return compilers.mark(shells.make_shell(traced, example), marks)


def _log_operators(traced: Any) -> None:
    """Log the lines of the real package, with this model's counts."""
    counts = compilers.count_operators(traced.inlined_graph)
    compiled = {name: count for name, count in counts.items() if name not in ON_CPU}
    total, fused = sum(counts.values()), sum(compiled.values())
    share = f"{100 * fused / total:.2f}%"
    log.info(
        "Number of arithmetic operators (post-compilation) before = %d, compiled = %d, percent compiled = %s",
        *(total, fused, share),
    )
    log.info("Compiled these operators (and operator counts) to Neuron:")
    for name, count in compiled.items():
        log.info(" => %s: %d", name, count)
    log.info("Not compiled operators (and operator counts) to Neuron:")
    for name, count in counts.items():
        if name not in compiled:
            log.info(" => %s: %d [%s]", name, count, "not supported" if name in ON_CPU else "supported")
