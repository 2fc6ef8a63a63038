"""Most characters of a text, as settings have them."""

from corelane.errors import TooLarge
from corelane.settings import Settings


def check_text(settings: Settings, place: str, text: str) -> None:
    """Raise TooLarge for a text that is too long; ``place`` begins the sentence."""
    most, setting = settings.text_chars
    _check(place, text, most, f"cut it into several, or have the operator raise {setting}")


def check_beside(settings: Settings, place: str, text: str) -> None:
    """Raise TooLarge for what stands beside a text, such as a query, if it is too long."""
    most, setting = settings.beside_chars
    _check(place, text, most, f"shorten it, or have the operator raise {setting}")


def _check(place: str, text: str, most: int, remedy: str) -> None:
    if len(text) > most:
        raise TooLarge(f"{place} is longer than {most:,} characters: {remedy}")
