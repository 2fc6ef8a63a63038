"""Widens answers to whole words, as the tokenizer cuts a text into words before it cuts words into tokens."""

from collections.abc import Sequence

from tokenizers import Tokenizer

from corelane.tasks.question_answering.engine.spans import Candidate, overlaps

#: Longest part of a word that is searched for on either side of an answer, in characters.
MOST_CHARS = 256


def in_whole_words(tokenizer: Tokenizer, text: str, best: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates as whole words, in their order. A candidate that then overlaps a better one is left out."""
    found: list[Candidate] = []
    for each in best:
        start, end = whole_words(tokenizer, text, each.start, each.end)
        if not overlaps(wider := each._replace(start=start, end=end), found):
            found.append(wider)
    return found


def whole_words(tokenizer: Tokenizer, text: str, start: int, end: int) -> tuple[int, int]:
    """Return where the words of a stretch of text begin and end. White space always ends a word."""
    begin, stop = start, end
    while begin > max(0, start - MOST_CHARS) and not text[begin - 1].isspace():
        begin -= 1
    while stop < min(len(text), end + MOST_CHARS) and not text[stop].isspace():
        stop += 1
    encoding = tokenizer.encode(text[begin:stop], add_special_tokens=False)
    tokens = [
        (word, begin + first, begin + last)
        for word, (first, last) in zip(encoding.word_ids, encoding.offsets, strict=True)
    ]
    words = {word for word, first, last in tokens if first < end and start < last and word is not None}
    inside = [(first, last) for word, first, last in tokens if word in words]
    return min([start, *(first for first, _ in inside)]), max([end, *(last for _, last in inside)])
