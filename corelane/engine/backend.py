"""The Backend protocol: what runs compiled artifacts on one core. Plain arrays in and out; one file per backend."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from corelane.artifacts import Artifact
from corelane.engine.buckets import Bucket
from corelane.errors import SetupError

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Batch:
    """Windows that run in one forward pass; all arrays are rows × ``bucket.length``, padding masked with 0.

    ``rows`` may be fewer than the bucket's where the artifact has flexible rows, never more.
    """

    bucket: Bucket
    input_ids: Ints
    attention_mask: Ints
    token_type_ids: Ints

    @property
    def rows(self) -> int:
        """Rows of this batch."""
        return int(self.input_ids.shape[0])


@dataclass(frozen=True, slots=True)
class Logits:
    """Start and end logits of a batch, each rows × length, fp32."""

    start: Floats
    end: Floats


class Model(Protocol):
    """A loaded artifact; what is in it is the backend's matter."""

    @property
    def artifact(self) -> Artifact:
        """What it was loaded from."""
        ...


class Backend(Protocol):
    """Runs compiled artifacts on one core; one per process.

    One thread may load, warm up, settle and unload models while another runs others: a model itself is used by one
    thread at a time.
    """

    def load(self, artifact: Artifact) -> Model:
        """Load every bucket after checking the files; raises ArtifactRefused or LoadFailed and keeps nothing."""
        ...

    def run(self, model: Model, batch: Batch) -> Logits:
        """One forward pass, one row of logits per row of the batch; raises RunFailed or CoreLost."""
        ...

    def settle(self) -> None:
        """Give back to the system what loading and unloading left behind; called after each of them."""
        ...

    def unload(self, model: Model) -> None:
        """Give the model's memory back; a model unloaded twice is no error, one run afterwards raises RunFailed.

        Where the runtime keeps it all the same, the core's process is replaced.
        """
        ...

    def health(self) -> None:
        """Raise CoreLost if the core can do no work."""
        ...


def open_backend(target: str) -> Backend:
    """The backend for a target; its heavy imports happen here and nowhere else."""
    if target == "cpu":
        from corelane.engine.cpu import CpuBackend

        return CpuBackend()
    raise SetupError(f"no backend runs artifacts of target {target!r}; this build has: cpu")
