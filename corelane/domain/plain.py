"""Makes text from others safe to show on a terminal."""

#: Control characters, line separators, and the marks that change the direction of writing.
CONTROLS = dict.fromkeys(
    [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], " "
)


def plain(text: str) -> str:
    """Replace control characters in a text by spaces: they could move the cursor or forge the screen."""
    return text.translate(CONTROLS)
