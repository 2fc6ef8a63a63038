"""Shorten an error's text to the line that gives the reason."""


def first_line(error: object) -> str:
    """Return the first line of an error's text."""
    return _lines(error)[0]


def last_line(error: object) -> str:
    """Return the last line of an error's text, where torch and the compilers put the reason."""
    return _lines(error)[-1]


def _lines(error: object) -> list[str]:
    unknown = type(error).__name__ if isinstance(error, BaseException) else "no reason given"
    return str(error).strip().splitlines() or [unknown]
