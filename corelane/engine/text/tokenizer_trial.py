"""Loads a tokenizer and lets it read awkward texts. ``tokenizer`` runs this in another process, under a time limit."""

import sys

from tokenizers import Tokenizer

#: Lengths of the texts, in characters. A pattern may take long over one length and give up over a longer one.
LENGTHS = (200, 1500, 4000)

#: Strings that the texts repeat.
REPEATED = ("a", "A", "0", " ", "\n", ".", "-", "é", "中", "\u0301", "👍", "ab", "a ", "1,", "a.", "\r\n", "://")

#: Texts on which patterns with several ways to match take longest: long runs, and an end that does not match.
AWKWARD = tuple(part * (length // len(part)) + "\x00" for part in REPEATED for length in LENGTHS)


def read_awkward_texts(path: str) -> None:
    """Load a tokenizer and let it read the texts; errors are the library's own."""
    tokenizer = Tokenizer.from_file(path)
    tokenizer.no_truncation()
    for text in AWKWARD:
        tokenizer.encode(text, add_special_tokens=False)


if __name__ == "__main__":
    read_awkward_texts(sys.argv[1])
