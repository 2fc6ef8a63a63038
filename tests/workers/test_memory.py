"""Whether an unloaded model gave its memory back."""

from workers.memory import keeps_memory, resident_bytes

MB = 1 << 20


def test_process_that_kept_most_of_a_model_has_to_end() -> None:
    assert keeps_memory(1000 * MB, 950 * MB, 200 * MB)
    assert not keeps_memory(1000 * MB, 850 * MB, 200 * MB)


def test_small_model_is_not_worth_a_restart() -> None:
    assert not keeps_memory(100 * MB, 100 * MB, 30 * MB)


def test_memory_of_this_process_is_seen_to_grow() -> None:
    before = resident_bytes()
    block = bytearray(b"x" * (50 * MB))
    assert resident_bytes() - before > len(block) // 2
