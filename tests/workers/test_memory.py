"""Whether an unloaded model gave its memory back, and what a process may hold after a batch."""

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from corelane.artifacts.manifest import Artifact
from corelane.domain.dispatch import Core
from corelane.engine.cores import keep_memory
from corelane.engine.memory import resident_bytes
from corelane.engine.null import NullRunner
from corelane.settings import Settings
from workers.core.device import tree_bytes
from workers.core.process import CoreProcess
from workers.models import runners
from workers.models.loader import keeps_memory
from workers.models.runners import LOOSE_BYTES, Loader

MB = 1 << 20


def test_process_that_kept_most_of_a_model_has_to_end() -> None:
    assert keeps_memory(1000 * MB, 950 * MB, 200 * MB)
    assert not keeps_memory(1000 * MB, 850 * MB, 200 * MB)


def test_small_model_is_not_worth_a_restart() -> None:
    assert not keeps_memory(100 * MB, 100 * MB, 30 * MB)


def test_memory_that_cannot_be_measured_counts_as_kept() -> None:
    assert keeps_memory(None, None, 200 * MB)
    assert not keeps_memory(None, None, 30 * MB)


def test_memory_of_this_process_is_seen_to_grow() -> None:
    before = resident_bytes()
    block = bytearray(b"x" * (50 * MB))
    assert resident_bytes() - before > len(block) // 2


#: Bytes of a block, and how many: each other one stays in use, so that no end of the heap is free.
BLOCK_BYTES, BLOCKS = 64 << 10, 2 * 3 * LOOSE_BYTES // (64 << 10)


@pytest.fixture
def loader(tiny_artifact: Artifact) -> Iterator[Loader]:
    """One that has loaded a model."""
    keep_memory()
    loader = Loader("cpu", tiny_artifact.path.parents[2])
    runner = loader.load(tiny_artifact.manifest.version_id)
    yield loader
    runner.close()


def leave_gaps(library: ctypes.CDLL) -> list[int]:
    """Fill the heap, and free each other block; return what is left."""
    library.malloc.restype = ctypes.c_void_p
    blocks = [library.malloc(ctypes.c_size_t(BLOCK_BYTES)) for _ in range(BLOCKS)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK_BYTES)
    for block in blocks[::2]:
        library.free(ctypes.c_void_p(block))
    return blocks[1::2]


def test_gaps_that_batches_left_are_given_back(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    library = ctypes.CDLL(None)
    left = leave_gaps(library)
    held = resident_bytes()
    loader.trim(is_idle=False)
    assert held - resident_bytes() < LOOSE_BYTES // 4, "it is too early"
    monkeypatch.setattr(runners, "TRIM_EVERY_S", 0.0)
    loader.trim(is_idle=False)
    assert held - resident_bytes() > 2 * LOOSE_BYTES
    for block in left:
        library.free(ctypes.c_void_p(block))


class Batch:
    """A batch of a model with a bound of its own."""

    def __init__(self, max_memory_mb: float | None) -> None:
        self.runner = NullRunner("null@0")
        self.runner.max_memory_mb = max_memory_mb


@pytest.mark.parametrize(
    ("of_core", "of_model", "event"),
    [
        (None, None, None),
        (10**6, None, None),
        (None, 10**6, None),
        (10**6, "held", "memory_above_bound"),
        ("held", 10**6, "memory_above_bound"),
        (1, None, "memory_bound_too_low"),
    ],
)
def test_process_is_replaced_after_the_batch_that_leaves_it_above_its_bound(
    settings: Settings, bell: str, of_core: Any, of_model: Any, event: str | None
) -> None:
    held = tree_bytes() / 1000**2 + 100
    bounds = [held if bound == "held" else bound for bound in (of_core, of_model)]
    core = CoreProcess(
        settings.model_copy(update={"max_memory_mb": bounds[0], "target": "null"}), Core("test", 0), bell
    )
    batch: Any = Batch(bounds[1])
    core.memory.note_models()
    core.memory.batch_started(batch)
    with capture_logs() as lines:
        core.memory.batch_finished(batch)
        assert not lines or event == "memory_bound_too_low"
        block = bytearray(b"x" * (200 * MB))
        core.memory.batch_finished(batch)
        core.memory.batch_finished(batch)
    assert [line["event"] for line in lines] == ([event] if event else []), len(block)
    assert core.models.loads._holds_too_much == (event == "memory_above_bound")
