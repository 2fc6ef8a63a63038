"""The Backend protocol: run compiled artifacts on one core. Plain arrays in and out; one file per backend."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from corelane.artifacts.manifest import Artifact
from corelane.engine.buckets import Bucket

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class WindowBatch:
    """Windows that run in one forward pass; all arrays are rows × tokens, padding masked with 0.

    A batch may have fewer rows than its bucket if the artifact has flexible rows, and shorter rows if it has flexible
    lengths. It never has more or longer rows.
    """

    bucket: Bucket
    input_ids: Ints
    attention_mask: Ints
    token_type_ids: Ints

    @property
    def rows(self) -> int:
        """Return the rows of this batch."""
        return int(self.input_ids.shape[0])

    def first(self, rows: int) -> "WindowBatch":
        """Return a batch of only its first rows."""
        return WindowBatch(self.bucket, self.input_ids[:rows], self.attention_mask[:rows], self.token_type_ids[:rows])

    def cut(self, length: int) -> "WindowBatch":
        """Return the batch cut to a length. The tokens beyond it must all be padding."""
        arrays = (self.input_ids, self.attention_mask, self.token_type_ids)
        return WindowBatch(self.bucket, *(np.ascontiguousarray(array[:, :length]) for array in arrays))


#: What a model gives for a batch: fp32 arrays, each with one entry per row. The model's task says what they are.
Logits = tuple[Floats, ...]

#: A forward pass.
Pass = Callable[[WindowBatch], Logits]


class Model(Protocol):
    """A loaded artifact; only its backend knows its contents."""

    @property
    def artifact(self) -> Artifact:
        """Return the artifact that the model was loaded from."""
        ...


class Backend(Protocol):
    """Runs compiled artifacts on one core; one per process.

    One thread may load, warm up, settle and unload models while another runs other models. A single model is used by
    one thread at a time.
    """

    #: Whether the host's CPU is free during a forward pass, so that claiming and tokenising meanwhile saves time.
    overlaps: bool

    #: Whether, once one row of a length is warm, more rows cost only a few milliseconds in their first pass.
    rows_share_kernels: bool

    def load(self, artifact: Artifact) -> Model:
        """Check the files, then load every bucket; raises ArtifactRefused or LoadFailed and keeps nothing.

        RuntimeLost means that this process can do no more work, CoreLost that the core can do no more work. ``run``
        raises both too.
        """
        ...

    def run(self, model: Model, batch: WindowBatch) -> Logits:
        """Run one forward pass; return one row of logits per row of the batch. Raises RunFailed."""
        ...

    def settle(self) -> None:
        """Return memory that loading or unloading left behind to the system; called after each of them."""
        ...

    def unload(self, model: Model) -> None:
        """Free the model's memory. Unloading twice is allowed; running the model afterwards raises RunFailed.

        If the runtime keeps the memory nevertheless, the core's process is replaced.
        """
        ...

    def held_bytes(self) -> int | None:
        """Return the bytes held in the memory for models, to check that unloading frees it; None if this is unknown."""
        ...

    def health(self) -> None:
        """Raise CoreLost if the core cannot work."""
        ...
