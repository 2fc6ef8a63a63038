"""Store the logits that an artifact must give on the sample texts, if it was compiled on a machine that cannot run it.

Another machine can then verify the artifact without the source model.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from compile.model.probes import Probe, fill_probe
from compile.tasks.task import compile_task
from corelane.artifacts.manifest import TOKENIZER_NAME, Artifact
from corelane.engine.buckets import Bucket
from corelane.errors import CompileFailed

EXPECTED_NAME = "expected.npz"


def keep_expected(probes: Sequence[Probe], folder: Path) -> None:
    """Write the eager network's logits, and a digest of their inputs."""
    arrays: dict[str, Any] = {}
    for probe in probes:
        bucket = probe.batches[0].bucket
        for name, arrays_of in zip(probe.task.outputs, zip(*probe.expected, strict=True), strict=True):
            arrays[f"{bucket}-{name.removesuffix('_logits')}"] = np.stack(arrays_of)
        arrays[f"{bucket}-inputs"] = np.frombuffer(_digest(probe), dtype=np.uint8)
    np.savez_compressed(folder / EXPECTED_NAME, **arrays)


def read_expected(artifact: Artifact) -> list[Probe]:
    """Return the probes of an artifact's buckets; raises CompileFailed if the samples have changed since the build."""
    path = artifact.file(EXPECTED_NAME)
    if EXPECTED_NAME not in artifact.manifest.files:
        raise CompileFailed(f"{artifact.path} holds no {EXPECTED_NAME}: compile it again, with --cpu-backend or here")
    tokenizer = Tokenizer.from_file(str(artifact.file(TOKENIZER_NAME)))
    task, probes = compile_task(artifact.manifest.task), []
    with np.load(path) as arrays:
        for file in artifact.manifest.buckets:
            bucket = Bucket(length=file.length, rows=file.rows)
            rows, batches = fill_probe(task, tokenizer, artifact.manifest.tokenizer, bucket)
            expected = zip(*(arrays[f"{bucket}-{name.removesuffix('_logits')}"] for name in task.outputs), strict=True)
            probe = Probe(task, rows, batches, list(expected))
            if _digest(probe) != arrays[f"{bucket}-inputs"].tobytes():
                raise CompileFailed(
                    f"{path} was made by another version of Corelane, with other samples: compile again"
                )
            probes.append(probe)
    return probes


def _digest(probe: Probe) -> bytes:
    digest = hashlib.sha256()
    for batch in probe.batches:
        digest.update(batch.input_ids.tobytes() + batch.attention_mask.tobytes() + batch.token_type_ids.tobytes())
    return digest.digest()
