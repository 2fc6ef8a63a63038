"""The check that an unloaded model gave its memory back."""

#: Less than this is not worth a restart, in bytes: it is within what an allocator keeps for itself.
WORTHWHILE_BYTES = 64 << 20

#: A runtime that gives back less than this share of a model's weight keeps it.
GIVEN_BACK_SHARE = 0.5


def keeps_memory(before_bytes: int | None, after_bytes: int | None, model_bytes: int) -> bool:
    """Return whether a process still holds what a model took, after it was unloaded: only its end gives that back.

    Where nobody can tell (None) it does.
    """
    if model_bytes < WORTHWHILE_BYTES:
        return False
    if before_bytes is None or after_bytes is None:
        return True
    return before_bytes - after_bytes < GIVEN_BACK_SHARE * model_bytes
