"""Texts to tokens, word by word: a word met before is looked up, and only new words go through the tokenizer.

The tokenizer of BERT models cuts at white space and punctuation whatever stands around, so that what it makes of a text
is what it makes of the parts between. A tokenizer of another kind, and a text that spells a special token, is read
whole. Offsets are code points of the caller's own string either way.
"""

import re
from array import array
from collections.abc import Iterable, Sequence

import numpy as np
from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from corelane.engine.text.cache import Context

#: ASCII punctuation, as a regular expression writes it between brackets.
MARKS = r"!-/:-@\[-`{-~"

#: A mark or a run of anything else, with the white space before it; together the parts of a text are the text.
PART = re.compile(rf"[ \n]*(?:[^ \n{MARKS}]+|[{MARKS}])|[ \n]+")

#: Words remembered, 146 bytes each; 1,600 passages of SQuAD and their questions have 27,000.
MOST_WORDS = 32_768

#: Characters of the longest that is remembered: beyond are addresses, and sentences of scripts without spaces.
LONGEST_WORD = 32

#: Bytes of a token in a remembered word: its id, its start and its end, counted from the word's.
TOKEN_BYTES = 3 * 4


class Words:
    """What a tokenizer makes of words. Not thread-safe."""

    def __init__(self, tokenizer: Tokenizer, most: int = MOST_WORDS) -> None:
        """Of ``most`` words at most; where there would be more, all are forgotten."""
        self._tokenizer = tokenizer
        self._most = most
        self._known: dict[str, bytes] = {}
        self._cuts = cuts_at_marks(tokenizer)
        if self._cuts:
            self._model = tokenizer.model
            self._special = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
            self._ignores_case = tokenizer.normalizer is not None and tokenizer.normalizer.lowercase

    def __len__(self) -> int:
        """Words remembered."""
        return len(self._known)

    def read(self, texts: Sequence[str]) -> list[Context]:
        """The tokens of each text."""
        whole = [text for text in texts if not self._cuts or any(token in text for token in self._special)]
        if not whole:
            return self._read_parts(texts)
        encodings = self._tokenizer.encode_batch(whole, add_special_tokens=False)
        contexts = {text: Context.of(encoding) for text, encoding in zip(whole, encodings, strict=True)}
        parts = [text for text in texts if text not in contexts]
        contexts |= zip(parts, self._read_parts(parts), strict=True)
        return [contexts[text] for text in texts]

    def _read_parts(self, texts: Sequence[str]) -> list[Context]:
        """All texts in one go: their parts' tokens strung together, moved to where the parts stand, and dealt out."""
        if not texts:
            return []
        parts: list[str] = []
        lasts = []
        for text in texts:
            # Of ASCII alone lower case is as long, and read alike.
            parts += PART.findall(text.lower() if self._ignores_case and text.isascii() else text)
            lasts.append(len(parts))
        tokens = self._look_up(parts)
        flat = np.frombuffer(b"".join(tokens), dtype=np.int32).reshape(-1, 3)
        lengths = np.fromiter(map(len, parts), dtype=np.int32, count=len(parts))
        counts = np.fromiter(map(len, tokens), dtype=np.int32, count=len(parts)) // TOKEN_BYTES
        part_starts = np.cumsum(lengths, dtype=np.int32) - lengths
        places = flat[:, 1:] + np.repeat(part_starts, counts)[:, None]
        ends = np.concatenate([[0], np.cumsum(counts)])[lasts].tolist()
        contexts = []
        start = offset = 0
        for text, end in zip(texts, ends, strict=True):
            contexts.append(Context(flat[start:end, 0].copy(), places[start:end] - np.int32(offset)))
            start, offset = end, offset + len(text)
        return contexts

    def _look_up(self, parts: list[str]) -> list[bytes]:
        """The tokens of each part, as id, start and end in bytes."""
        known = self._known
        missing = set(parts).difference(known)
        if len(known) + len(missing) > self._most:
            known.clear()
            missing = set(parts)
        known |= self._encode(missing)
        found = [known[part] for part in parts]
        if len(known) > self._most:
            known.clear()
        for part in missing:
            if len(part) > LONGEST_WORD:
                known.pop(part, None)
        return found

    def _encode(self, parts: Iterable[str]) -> dict[str, bytes]:
        """New words through the tokenizer; printable ASCII, which it takes as it is, through its model alone."""
        fresh, others = {}, []
        for part in parts:
            word = part.lstrip(" \n")
            if word.isascii() and word.isprintable() and word:
                start = len(part) - len(word)
                cells = array("i")
                for token in self._model.tokenize(word.lower() if self._ignores_case else word):
                    first, last = token.offsets
                    cells.extend((token.id, start + first, start + last))
                fresh[part] = cells.tobytes()
            else:
                others.append(part)
        if others:
            fresh |= zip(others, self._encode_lines(others), strict=True)
        return fresh

    def _encode_lines(self, parts: list[str]) -> list[bytes]:
        """New words through the whole tokenizer, a line each."""
        flat = Context.of(self._tokenizer.encode("\n".join(parts), add_special_tokens=False))
        lengths = np.fromiter(map(len, parts), dtype=np.int32, count=len(parts)) + 1
        ends = np.cumsum(lengths, dtype=np.int32)
        bounds = np.searchsorted(flat.places[:, 0], ends)
        relative = flat.places - np.repeat(ends - lengths, np.diff(bounds, prepend=0))[:, None]
        content = np.concatenate([flat.ids[:, None], relative], axis=1).tobytes()
        stops = (bounds * TOKEN_BYTES).tolist()
        return [content[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]


def cuts_at_marks(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer reads each part of a text by itself, but for its special tokens, found in the text as given.

    Each of those must hold a mark and more: then none is in a part.
    """
    return (
        isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
        and (tokenizer.normalizer is None or isinstance(tokenizer.normalizer, BertNormalizer))
        and all(
            not token.normalized and PART.fullmatch(token.content) is None
            for token in tokenizer.get_added_tokens_decoder().values()
        )
    )
