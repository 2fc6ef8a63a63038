"""The fenced blocks of the documents: where they stand, what they are, and whether they run in this suite.

A fence's info string is its language and, where it cannot run beside the suite's one fleet, ``elsewhere=REASON``.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: A fence at the beginning of a line, and all between it and the next.
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Snippet:
    """One fenced block."""

    page: str
    line: int
    language: str
    elsewhere: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return the documents that tell readers what to type."""
    return [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "models").glob("*/README.md")),
    ]


def blocks_of(page: Path) -> list[Snippet]:
    """Return every fenced block of a page, in order."""
    found, text = [], page.read_text()
    for block in FENCE.finditer(text):
        language, *marks = block[1].split() or [""]
        elsewhere = [mark.removeprefix("elsewhere=") for mark in marks]
        line = text.count("\n", 0, block.start()) + 1
        found.append(Snippet(str(page.relative_to(ROOT)), line, language, " ".join(elsewhere), block[2]))
    return found


def snippets() -> list[Snippet]:
    """Return every fenced block of every page, in order."""
    return [each for page in pages() for each in blocks_of(page)]
