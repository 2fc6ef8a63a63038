"""Whether an unloaded model gave its memory back."""

from corelane.engine.memory import resident_bytes
from workers.models.memory import keeps_memory

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
