"""Most characters of a text, as settings have them."""

from corelane.errors import TooLarge

#: What to do with a text that is too long.
REMEDIES = {"question": "shorten it", "context": "cut it into several passages"}


def check_length(place: str, text: str, most: int, kind: str) -> None:
    """Raise TooLarge for a text that is too long; ``kind`` is in the setting's name."""
    if len(text) > most:
        raise TooLarge(
            f"{place} is longer than {most:,} characters: {REMEDIES[kind]}, or have the operator raise "
            f"CORELANE_MAX_{kind.upper()}_CHARS"
        )
