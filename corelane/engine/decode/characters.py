"""Keep characters as people see them whole: an answer never cuts an accent, a skin tone, a flag or a family apart.

The rules are Unicode's extended grapheme clusters (UAX #29), as the package ``regex`` keeps them.
"""

import regex

#: One character as people see it.
GRAPHEME = regex.compile(r"\X")

#: No character before it joins the one before, but for a line feed after a carriage return.
FIRST_JOINING = "\u0300"

#: Code points looked back for the beginning of a character: longer ones are not written in any language.
LOOK_BACK = 128


def whole_characters(text: str, start: int, end: int) -> tuple[int, int]:
    """Return ``start`` and ``end``, moved apart to where a character begins and ends; both in code points."""
    first = _bounds(text, start)[0] if start < end else start
    return first, _bounds(text, end)[1]


def _bounds(text: str, at: int) -> tuple[int, int]:
    """Return the boundaries of characters next to ``at``, at or before it and at or after it."""
    if at <= 0 or at >= len(text) or text[at] < FIRST_JOINING:
        return at, at
    begin = least = max(0, at - LOOK_BACK)
    for place in range(at - 1, least, -1):
        if text[place] < FIRST_JOINING and text[place - 1] < FIRST_JOINING:
            begin = place
            break
    for character in GRAPHEME.finditer(text, begin):
        if character.end() >= at:
            return (at, at) if character.end() == at else character.span()
    return at, at
