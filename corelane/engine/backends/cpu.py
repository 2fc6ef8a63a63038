"""Backend for artifacts on one CPU core: TorchScript, or a format that a plugin adds (``engine/backends/plugin.py``).

torch 2.13 marks TorchScript as deprecated (it works, and Neuron's trace produces it too). The warning is silenced here,
for these calls only.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from corelane.artifacts.manifest import Artifact, check_files
from corelane.engine.backends.plugin import TORCHSCRIPT, format_of
from corelane.engine.backends.protocol import Logits, Model, Pass, WindowBatch
from corelane.engine.memory import available_bytes, check_room, give_back, resident_bytes
from corelane.errors import ArtifactRefused, CoreLost, LoadFailed, RunFailed, last_line

# TorchScript's other executor profiles a graph, and all it calls, again at each new length: 30 to 50 ms in the first
# batches of each. Nothing is gained from it here: torch 2.13 fuses no passes for a CPU.
torch._C._jit_set_profiling_executor(False)

#: Operations whose result depends only on weights.
PACKING = {"mkldnn::_reorder_linear_weight": torch.ops.mkldnn._reorder_linear_weight}

#: Prefix of the attributes that hold packed weights; a number follows.
PREFIX = "packed_"


@contextmanager
def torchscript_warnings_silenced() -> Iterator[None]:
    """Silence the deprecation warning of TorchScript, and no other."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*torch\.jit\.", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message=r".*torch\.jit\.", category=FutureWarning)
        yield


@dataclass(slots=True)
class CpuModel:
    """Forward passes by bucket length; buckets that share a file share a module."""

    artifact: Artifact
    passes: dict[int, Pass]


class CpuBackend:
    """Runs on the CPU cores this process is pinned to; models of several formats side by side."""

    overlaps = False
    rows_share_kernels = True

    def load(self, artifact: Artifact) -> CpuModel:
        """Load every bucket, the largest first. If the model cannot fit into memory, refuse it before that."""
        manifest = artifact.manifest
        if manifest.target != "cpu":
            raise ArtifactRefused(f"{artifact.path} is for {manifest.target}, not for cpu")
        open_file = open_trace if manifest.format == TORCHSCRIPT else format_of(artifact).open
        check_files(artifact)
        check_room(manifest.version_id, manifest.bytes, available_bytes())
        passes: dict[int, Pass] = {}
        loaded: dict[str, Pass] = {}
        for bucket in sorted(manifest.buckets, key=lambda bucket: -bucket.rows * bucket.length):
            try:
                if bucket.file not in loaded:
                    loaded[bucket.file] = open_file(artifact, bucket.file)
                passes[bucket.length] = loaded[bucket.file]
            except (RuntimeError, OSError, MemoryError) as error:
                raise LoadFailed(f"{bucket.file} of {manifest.version_id} does not load: {last_line(error)}") from error
        return CpuModel(artifact, passes)

    def run(self, model: Model, batch: WindowBatch) -> Logits:
        """Run the module of the batch's length."""
        forward = cast(CpuModel, model).passes.get(batch.bucket.length)
        if forward is None:
            raise RunFailed(
                f"{model.artifact.manifest.version_id} has no bucket of length {batch.bucket.length} loaded"
            )
        try:
            return forward(batch)
        except RuntimeError as error:
            raise RunFailed(f"forward pass of {batch.bucket} failed: {last_line(error)}") from error

    def settle(self) -> None:
        """Return memory that loading and warming up left behind to the system (200 MB to 1.3 GB)."""
        give_back()

    def unload(self, model: Model) -> None:
        """Drop the modules; the allocator returns their memory."""
        cast(CpuModel, model).passes.clear()

    def held_bytes(self) -> int:
        """Return the memory this process holds."""
        return resident_bytes()

    def health(self) -> None:
        """Multiply two small matrices and check the product."""
        product = (torch.ones(4, 4) @ torch.ones(4, 4)).numpy()
        if not np.array_equal(product, np.full((4, 4), 4, dtype=np.float32)):
            raise CoreLost("this CPU multiplies wrongly; take the machine out of service")


def run_module(module: Any, batch: WindowBatch) -> Logits:
    """Run one forward pass of a module of TorchScript."""
    with torch.inference_mode():
        found = module(
            torch.from_numpy(batch.input_ids),
            torch.from_numpy(batch.attention_mask),
            torch.from_numpy(batch.token_type_ids),
        )
    return tuple(each.float().numpy() for each in (found if isinstance(found, tuple) else (found,)))


def open_trace(artifact: Artifact, file: str) -> Pass:
    """Load a file of TorchScript and pack its weights; errors are torch's own."""
    with torchscript_warnings_silenced():
        module = settle(torch.jit.load(artifact.file(file), map_location="cpu").eval())

    def forward(batch: WindowBatch) -> Logits:
        return run_module(module, batch)

    return forward


def settle(scripted: Any) -> Any:
    """Pack the weights of a frozen module in place, before its first pass. Afterwards the module cannot be saved.

    A file holds plain weights and, before each linear layer, the operation that packs them. The packed form depends on
    the CPU and the library, so it cannot be stored in the file. This runs those operations and replaces them by their
    results. A module that was not settled gives the same logits, but packs on every pass.
    """
    graph = scripted.graph
    owner = next(iter(graph.inputs()))
    packed: dict[str, str] = {}
    for operation, pack in PACKING.items():
        for node in graph.findAllNodes(operation):
            weight = node.inputsAt(0)
            name = packed.get(weight.debugName())
            if name is None:
                name = packed[weight.debugName()] = f"{PREFIX}{len(packed)}"
                with torch.no_grad():
                    scripted._c._register_attribute(name, torch._C.TensorType.get(), pack(weight.toIValue()))
            attribute = graph.create("prim::GetAttr", [owner], 1)
            attribute.s_("name", name)
            attribute.insertBefore(node)
            node.output().replaceAllUsesWith(attribute.output())
            node.destroy()
    torch._C._jit_pass_dce(graph)
    return scripted
