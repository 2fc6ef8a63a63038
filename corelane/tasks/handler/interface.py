"""What a handler is: the class that an operator's package subclasses (``from corelane import Handler``).

This module needs pydantic alone, so that a package of handlers can be tested without a service.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class HandlerCore:
    """The core that a handler runs on.

    ``device`` is its name in PyTorch, ``index`` its number on this host, ``folder`` that of the version's files.
    """

    device: str
    index: int
    folder: Path


class Handler:
    """A model in Python. Corelane makes one of it in a core's process for each version that is loaded there.

    One thread calls ``setup`` and ``predict``. Memory, sockets and files that it holds end with the process.
    """

    #: The forms of an item and of its output; and of a job's options, if there are any.
    Input: ClassVar[type[BaseModel]]
    Output: ClassVar[type[BaseModel]]
    Options: ClassVar[type[BaseModel] | None] = None

    #: The most items of a batch, and the most units, which an item alone may pass.
    max_batch: ClassVar[int] = 32
    max_batch_units: ClassVar[int | None] = None

    #: The most bytes of an item as JSON, and of each file that it names; None is CORELANE_MAX_ITEM_BYTES, as is more.
    max_item_bytes: ClassVar[int | None] = None

    #: The longest time that ``predict`` may run, in seconds: then its process is replaced. None is no limit.
    timeout_s: ClassVar[float | None] = 60.0

    #: The memory that the core's process may hold after a batch, in MB: then it is replaced. None is no limit.
    max_memory_mb: ClassVar[float | None] = None

    def setup(self, core: HandlerCore) -> None:
        """Load what ``predict`` needs, once."""

    def units(self, item: Any) -> int:  # noqa: ARG002  # for handlers whose items differ
        """Return what an item costs, for batches and fairness."""
        return 1

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Return a list with the output of each item of a list, in order; an exception in it fails its item alone.

        A class with ``Options`` gets them as a second argument, the same for all items of a batch.
        """
        raise NotImplementedError
