"""OpenVINO models on one CPU core.

The only file that loads OpenVINO. A model is a graph (`.xml`) and its weights (`.bin`) beside it. Options that OpenVINO
would choose by the machine's load or size are fixed: one stream, one thread, on the CPU to which the process is pinned.
"""

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from corelane.artifacts.instructions import FAST_BY, instruction_sets
from corelane.artifacts.manifest import MANIFEST_NAME, Artifact
from corelane.engine.backends.protocol import Logits, Pass, WindowBatch
from corelane.errors import ArtifactRefused, SetupError
from corelane.errors.extras import install_command


def require_openvino() -> Any:
    """Return the library; raises SetupError saying how to install it."""
    try:
        import openvino
    except ImportError as error:
        raise SetupError(f"artifacts of format openvino need OpenVINO: run `{install_command('openvino')}`") from error
    return openvino


def options_for(dtype: str, present: Collection[str]) -> dict[str, Any]:
    """Return the options for a dtype on a CPU with these instruction sets. What int8 leaves out runs in bf16 if it can.

    Layers are quantised only at compile time. The plugin's own pinning is off: the process is pinned.
    """
    return {
        "INFERENCE_NUM_THREADS": 1,
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
        "INFERENCE_PRECISION_HINT": "f32" if dtype == "fp32" or set(FAST_BY["bf16"]).isdisjoint(present) else "bf16",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
    }


def weights_of(graph: str) -> str:
    """Return the name of the weights file for a graph file."""
    return f"{Path(graph).stem}.bin"


def open_graph(artifact: Artifact, file: str) -> Pass:
    """Load a graph and its weights; raises ArtifactRefused without their digest, SetupError without OpenVINO."""
    weights = weights_of(file)
    if weights not in artifact.manifest.files:
        raise ArtifactRefused(f"{artifact.file(MANIFEST_NAME)} has no digest for {weights}; compile it again")
    core = the_core()
    return forward_of(core, core.read_model(artifact.file(file), artifact.file(weights)), artifact.manifest.dtype)


def the_core() -> Any:
    """Return the core of OpenVINO that this process keeps; raises SetupError without the library.

    It gives its thread a stack for signals. If another thread drops it, that is freed, and the next signal a crash.
    """
    return _core_of(require_openvino())


@cache
def _core_of(library: Any) -> Any:
    return library.Core()


def forward_of(core: Any, model: Any, dtype: str) -> Pass:
    """Compile a model for this CPU; the forward pass takes any rows and lengths."""
    compiled = core.compile_model(model, "CPU", options_for(dtype, instruction_sets()))
    request, count = compiled.create_infer_request(), len(compiled.outputs)

    def forward(batch: WindowBatch) -> Logits:
        arrays = (batch.input_ids, batch.attention_mask, batch.token_type_ids)
        request.infer([np.ascontiguousarray(array) for array in arrays], share_inputs=True)
        return tuple(np.array(request.get_output_tensor(at).data, dtype=np.float32) for at in range(count))

    return forward
