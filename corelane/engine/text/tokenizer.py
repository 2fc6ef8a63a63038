"""Opens an artifact's tokenizer, after another process has shown that it reads texts quickly.

A tokenizer is data that steers code: a pattern of a few characters can keep a thread busy for minutes, and it cannot be
stopped. So its file is first checked against the manifest's digest. It is then tried on awkward texts under a time
limit. Only then is it loaded where items are answered. Before that no part of the artifact runs.
"""

import subprocess
import sys
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer

from corelane.artifacts.manifest import TOKENIZER_NAME, Artifact, check_file
from corelane.errors import ArtifactRefused

#: Largest tokenizer accepted, in bytes. The largest in use, with 250,000 pieces, take 17 million.
MOST_BYTES = 64 * 1024 * 1024

#: The module that the other process runs.
TRIAL = "corelane.engine.text.tokenizer_trial"

#: Time limit of the trial, in seconds. Tokenizers in use take less than one second, including Python's start.
TRIAL_S = 30.0


def open_tokenizer(artifact: Artifact) -> Tokenizer:
    """Return the tokenizer, without truncation and padding; raises ArtifactRefused."""
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
