"""Opens an artifact's tokenizer, after another process has shown that it reads texts quickly.

A tokenizer is data that steers code: a pattern of a few characters can keep a thread busy for minutes, and it cannot be
stopped. So its file is first checked against the manifest's digest. It is then tried on awkward texts under a time
limit. Only then is it loaded where items are answered. Before that no part of the artifact runs.
"""

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

if TYPE_CHECKING:
    from corelane.artifacts.manifest import Artifact

#: Largest tokenizer accepted, in bytes. The largest in use, with 250,000 pieces, take 17 million.
MOST_BYTES = 64 * 1024 * 1024

#: The module that the other process runs.
TRIAL = "corelane.engine.text.tokenizer"

#: Time limit of the trial, in seconds. Tokenizers in use take less than one second, including Python's start.
TRIAL_S = 30.0

#: Lengths of the texts, in characters. A pattern may take long over one length and give up over a longer one.
LENGTHS = (200, 1500, 4000)

#: Strings that the texts repeat.
REPEATED = ("a", "A", "0", " ", "\n", ".", "-", "é", "中", "\u0301", "👍", "ab", "a ", "1,", "a.", "\r\n", "://")

#: Texts on which patterns with several ways to match take longest: long runs, and an end that does not match.
AWKWARD = tuple(part * (length // len(part)) + "\x00" for part in REPEATED for length in LENGTHS)


def open_tokenizer(artifact: "Artifact") -> Tokenizer:
    """Return the tokenizer, without truncation and padding; raises ArtifactRefused."""
    # Imported here: the trial needs neither, and starts in a third of the time.
    from corelane.artifacts.manifest import TOKENIZER_NAME, check_file
    from corelane.errors import ArtifactRefused

    check_file(artifact, TOKENIZER_NAME)
    path = artifact.file(TOKENIZER_NAME)
    if path.stat().st_size > MOST_BYTES:
        raise ArtifactRefused(f"{path} has more than {MOST_BYTES:,} bytes; no tokenizer is that large")
    if (fault := _fault(path, artifact.manifest.files[TOKENIZER_NAME], TRIAL_S)) is not None:
        raise ArtifactRefused(f"{path} {fault}; compile {artifact.manifest.name} again from a model you trust")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@cache
def _fault(path: Path, digest: str, limit_s: float) -> str | None:  # noqa: ARG001  # one trial for each content
    """Try a tokenizer in another process; return the fault, or None."""
    try:
        done = subprocess.run(  # noqa: S603  # this interpreter, a module of ours
            [sys.executable, "-m", TRIAL, str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"takes more than {limit_s:g} s to read a few short texts"
    if done.returncode == 0:
        return None
    said = done.stderr.strip().splitlines()
    return f"cannot be loaded ({said[-1][:300] if said else f'its trial ended with status {done.returncode}'})"


def read_awkward_texts(path: str) -> None:
    """Load a tokenizer and let it read the texts; errors are the library's own."""
    tokenizer = Tokenizer.from_file(path)
    tokenizer.no_truncation()
    for text in AWKWARD:
        tokenizer.encode(text, add_special_tokens=False)


if __name__ == "__main__":
    read_awkward_texts(sys.argv[1])
