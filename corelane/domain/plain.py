"""Text of others, as it may be shown on a terminal."""

#: Control characters, line separators, and the marks that change the direction of writing.
CONTROLS = dict.fromkeys(
    [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], " "
)


def plain(text: str) -> str:
    """Return the text with spaces for control characters, which could move the cursor or forge the screen."""
    return text.translate(CONTROLS)
