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

    Rows may be fewer than the bucket's where the artifact has flexible rows, and shorter where it has flexible
    lengths, never more or longer.
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
        """Return the batch of its first rows."""
        return WindowBatch(self.bucket, self.input_ids[:rows], self.attention_mask[:rows], self.token_type_ids[:rows])

    def cut(self, length: int) -> "WindowBatch":
        """Return the batch without the tokens beyond a length; none of them may be visible."""
        arrays = (self.input_ids, self.attention_mask, self.token_type_ids)
        return WindowBatch(self.bucket, *(np.ascontiguousarray(array[:, :length]) for array in arrays))


@dataclass(frozen=True, slots=True)
class Logits:
    """Start and end logits of a batch, each rows × length, fp32."""

    start: Floats
    end: Floats


#: A forward pass.
Pass = Callable[[WindowBatch], Logits]


class Model(Protocol):
    """A loaded artifact; its contents are known to its backend alone."""

    @property
    def artifact(self) -> Artifact:
        """Return the artifact it was loaded from."""
        ...


class Backend(Protocol):
    """Runs compiled artifacts on one core; one per process.

    One thread may load, warm up, settle and unload models while another runs others; a model itself is used by one
    thread at a time.
    """

    #: Whether a forward pass leaves the host's CPU free, so that it is worth claiming and tokenising meanwhile.
    overlaps: bool

    #: Whether more rows of a length cost a few milliseconds at their first pass once one row of it is warm.
    rows_share_kernels: bool

    def load(self, artifact: Artifact) -> Model:
        """Load every bucket after checking the files; raises ArtifactRefused or LoadFailed and keeps nothing.

        RuntimeLost or CoreLost, here and from ``run``, say that this process, or this core, can do no more at all.
        """
        ...

    def run(self, model: Model, batch: WindowBatch) -> Logits:
        """Run one forward pass; return one row of logits per row of the batch. Raises RunFailed."""
        ...

    def settle(self) -> None:
        """Give memory that loading or unloading left behind back to the system; called after each of them."""
        ...

    def unload(self, model: Model) -> None:
        """Give the model's memory back. Unloading twice is allowed; running the model afterwards raises RunFailed.

        Where the runtime keeps it nevertheless, the core's process is replaced.
        """
        ...

    def held_bytes(self) -> int | None:
        """Return the bytes held where models lie, to tell whether an unloaded one was given back; None says never."""
        ...

    def health(self) -> None:
        """Raise CoreLost if the core can do no work."""
        ...
