"""Backend for TorchScript artifacts on one NVIDIA GPU, the first that this process sees.

Every bucket is captured as a CUDA graph when it is loaded. A batch is then one copy in, one launch and one copy out.
Batches use two sets of pinned buffers alternately, so that one can be filled and sent while the other computes:
``submit`` starts a batch, ``collect`` waits for it, ``run`` does both.

While a graph is captured, no thread may do anything else on the GPU. So captures and batches take turns, one bucket at
a time. Weights are loaded while batches run.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, cast

import numpy as np
import torch

from corelane.artifacts.manifest import Artifact, BucketFile, check_files
from corelane.engine.backends.cpu import torchscript_warnings_silenced
from corelane.engine.backends.protocol import Logits, Model, WindowBatch
from corelane.engine.buckets import Bucket
from corelane.errors import ArtifactRefused, CoreLost, EngineError, LoadFailed, RunFailed, RuntimeLost, SetupError

#: Sets of buffers for each bucket: one computes while the other is filled.
BUFFERS = 2

#: Passes before a bucket is captured: TorchScript profiles two, and the libraries choose their kernels.
WARM_UP_PASSES = 3

#: Texts of errors after which no call of this process can use the GPU (cudaGetErrorString, PyTorch, cuBLAS); compared
#: in lower case.
LOST = (
    "illegal memory access",
    "device-side assert",
    "unspecified launch failure",
    "launch timed out",
    "misaligned address",
    "illegal instruction",
    "invalid program counter",
    "hardware stack error",
    "uncorrectable ecc error",
    "uncorrectable nvlink error",
    "fallen off the bus",
    "gpu is lost",
    "no cuda-capable device",
    "devices are busy or unavailable",
    "driver shutting down",
    "context is destroyed",
    "cuda error: unknown error",
    "cublas_status_execution_failed",
    "cublas_status_internal_error",
)

#: Texts of errors that mean a lack of device memory.
OUT_OF_MEMORY = ("out of memory", "cublas_status_alloc_failed", "memory allocation failed")


def classify(error: BaseException, what: str, otherwise: type[EngineError]) -> EngineError:
    """Classify a failure on the GPU: RuntimeLost if this process can no longer use the GPU, else ``otherwise``."""
    text = str(error).strip() or type(error).__name__
    lowered = text.lower()
    reason = text.splitlines()[0]
    if any(known in lowered for known in LOST):
        return RuntimeLost(f"{what}: the GPU is lost to this process ({reason})")
    if any(known in lowered for known in OUT_OF_MEMORY):
        return otherwise(f"{what}: the GPU's memory does not suffice; compile smaller buckets, or load fewer models")
    return otherwise(f"{what}: {reason}")


@dataclass(slots=True, eq=False)
class Buffers:
    """The buffers of one batch: pinned host arrays, their copies on the device, and the event that marks its end."""

    host_in: Any
    host_out: Any
    device_in: Any
    device_out: Any
    done: Any
    #: The batch in these buffers; None once it was collected.
    ticket: "Ticket | None" = None


@dataclass(slots=True, eq=False)
class Ticket:
    """A submitted batch. It gets its ``logits`` when its buffers are needed for another batch."""

    rows: int
    what: str
    buffers: Buffers | None
    logits: Logits | None = None


@dataclass(slots=True)
class Captured:
    """A bucket's graph, its fixed input and output tensors, and its buffers, used alternately."""

    graph: Any
    inputs: Any
    outputs: Any
    rows: int
    turns: "cycle[Buffers]"


@dataclass(slots=True)
class CudaModel:
    """Captured buckets."""

    artifact: Artifact
    captured: dict[Bucket, Captured] = field(default_factory=dict)


class CudaBackend:
    """Runs TorchScript on one GPU."""

    overlaps = True
    rows_share_kernels = False

    def __init__(self) -> None:
        """Open the GPU; raises SetupError if there is none."""
        require_gpu()
        self._device = torch.device("cuda", 0)
        self._turn = threading.RLock()
        self._compute, self._sending, self._fetching = (torch.cuda.Stream(self._device) for _ in range(3))

    def load(self, artifact: Artifact) -> CudaModel:
        """Load and capture every bucket, the largest first, so that a lack of memory shows early."""
        manifest = artifact.manifest
        if manifest.target != "cuda" or manifest.format != "torchscript":
            raise ArtifactRefused(f"{artifact.path} is for {manifest.target}/{manifest.format}, not cuda/torchscript")
        check_files(artifact)
        model = CudaModel(artifact)
        loaded: dict[str, Any] = {}
        for bucket in sorted(manifest.buckets, key=lambda bucket: -bucket.rows * bucket.length):
            try:
                if bucket.file not in loaded:
                    with torchscript_warnings_silenced():
                        path = artifact.file(bucket.file)
                        loaded[bucket.file] = torch.jit.load(path, map_location=self._device).eval()
                with self._turn:
                    shape = Bucket(length=bucket.length, rows=bucket.rows)
                    model.captured[shape] = self._capture(loaded[bucket.file], bucket)
            except (RuntimeError, OSError, MemoryError) as error:
                lost = classify(error, f"{bucket.file} of {manifest.version_id} does not load", LoadFailed)
                with suppress(EngineError):
                    self.unload(model)
                raise lost from error
        return model

    def run(self, model: Model, batch: WindowBatch) -> Logits:
        """Run one forward pass of a captured bucket, from submission to logits."""
        return self.collect(self.submit(model, batch))

    def submit(self, model: Model, batch: WindowBatch) -> Ticket:
        """Start a batch and return at once. If its buffers still hold a batch, wait for that one first."""
        captured = cast(CudaModel, model).captured.get(batch.bucket)
        if captured is None or batch.rows > captured.rows:
            version = model.artifact.manifest.version_id
            raise RunFailed(f"{version} has no bucket {batch.bucket} for {batch.rows} rows loaded")
        what = f"forward pass of {batch.bucket} failed"
        with self._turn:
            buffers = next(captured.turns)
            if buffers.ticket is not None:
                self._take_out(buffers)
            try:
                fill(buffers.host_in.numpy(), batch)
                self._enqueue(captured, buffers)
            except RuntimeError as error:
                raise classify(error, what, RunFailed) from error
            buffers.ticket = Ticket(batch.rows, what, buffers)
            return buffers.ticket

    def collect(self, ticket: Ticket) -> Logits:
        """Wait for a submitted batch and return its logits. Later batches do not overwrite them."""
        with self._turn:
            if ticket.buffers is not None:
                self._take_out(ticket.buffers)
        if ticket.logits is None:
            raise RunFailed(f"{ticket.what}: it was lost with the batch before it")
        return ticket.logits

    def settle(self) -> None:
        """Return memory that is left from capturing to the GPU."""
        self._empty_cache()

    def unload(self, model: Model) -> None:
        """Drop the graphs and their buffers, and return the memory to the GPU."""
        with self._turn:
            cast(CudaModel, model).captured.clear()
            self._empty_cache()

    def held_bytes(self) -> int:
        """Return the memory of the GPU that this process has taken."""
        return int(torch.cuda.memory_reserved(self._device))

    def _empty_cache(self) -> None:
        try:
            with self._turn:
                torch.cuda.empty_cache()
        except RuntimeError as error:
            raise classify(error, "giving memory back failed", RunFailed) from error

    def health(self) -> None:
        """Multiply two small matrices on the GPU and check the product."""
        try:
            with self._turn:
                product = (torch.ones(4, 4, device=self._device) @ torch.ones(4, 4, device=self._device)).cpu().numpy()
        except RuntimeError as error:
            raise CoreLost(f"the GPU does not compute: {classify(error, 'matrix product', RunFailed)}") from error
        if not np.array_equal(product, np.full((4, 4), 4, dtype=np.float32)):
            raise CoreLost("this GPU multiplies wrongly; take it out of service")

    def _capture(self, module: Any, bucket: BucketFile) -> Captured:
        """Warm a bucket up on the compute stream, and capture one pass between fixed tensors."""
        inputs = torch.zeros((3, bucket.rows, bucket.length), dtype=torch.int64, device=self._device)
        inputs[1, :, 0] = 1
        self._compute.wait_stream(torch.cuda.current_stream(self._device))
        with torch.inference_mode(), torch.cuda.stream(self._compute):
            for _ in range(WARM_UP_PASSES):
                forward(module, inputs)
            self._compute.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self._compute):
                outputs = forward(module, inputs)
        turns = cycle([self._make_buffers(inputs, outputs) for _ in range(BUFFERS)])
        return Captured(graph, inputs, outputs, bucket.rows, turns)

    def _make_buffers(self, inputs: Any, outputs: Any) -> Buffers:
        host_in = torch.empty(inputs.shape, dtype=inputs.dtype, pin_memory=True)
        host_out = torch.empty(outputs.shape, dtype=outputs.dtype, pin_memory=True)
        return Buffers(host_in, host_out, torch.empty_like(inputs), torch.empty_like(outputs), torch.cuda.Event())

    def _enqueue(self, captured: Captured, buffers: Buffers) -> None:
        """Queue copy in, compute, copy out on three streams; each waits only for the one before."""
        with torch.cuda.stream(self._sending):
            buffers.device_in.copy_(buffers.host_in, non_blocking=True)
        self._compute.wait_stream(self._sending)
        with torch.cuda.stream(self._compute):
            captured.inputs.copy_(buffers.device_in, non_blocking=True)
            captured.graph.replay()
            buffers.device_out.copy_(captured.outputs, non_blocking=True)
        self._fetching.wait_stream(self._compute)
        with torch.cuda.stream(self._fetching):
            buffers.host_out.copy_(buffers.device_out, non_blocking=True)
            buffers.done.record(self._fetching)

    def _take_out(self, buffers: Buffers) -> None:
        """Wait for the batch in these buffers and copy its logits to its ticket."""
        ticket = buffers.ticket
        if ticket is None:
            return
        buffers.ticket, ticket.buffers = None, None
        try:
            buffers.done.synchronize()
        except RuntimeError as error:
            raise classify(error, ticket.what, RunFailed) from error
        ticket.logits = tuple(buffers.host_out.numpy()[:, : ticket.rows].copy())


def forward(module: Callable[..., Any], inputs: Any) -> Any:
    """Run one pass over one tensor of ids, mask and types; return its outputs as one fp32 tensor."""
    return torch.stack([each.float() for each in module(inputs[0], inputs[1], inputs[2])])


def fill(target: Any, batch: WindowBatch) -> None:
    """Write a batch into an array of 3 × rows × length. Unused rows get one visible token, so that no logit is NaN."""
    target[:, batch.rows :] = 0
    target[1, batch.rows :, 0] = 1
    for part, array in zip(target, (batch.input_ids, batch.attention_mask, batch.token_type_ids), strict=True):
        part[: batch.rows] = array


def require_gpu() -> None:
    """Raise SetupError, saying what is missing, if PyTorch cannot use a GPU here."""
    if torch.version.cuda is None:
        raise SetupError(
            f"this PyTorch ({torch.__version__}) was built without CUDA: install one that has it, or take target cpu"
        )
    if not torch.cuda.is_available():
        raise SetupError(
            "PyTorch finds no NVIDIA GPU here: see that `nvidia-smi` lists one and that CUDA_VISIBLE_DEVICES does not "
            "hide it, or take target cpu"
        )
