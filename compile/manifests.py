"""Write the manifest of an artifact that is being built: what it is, what made it, and how well it agrees."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Literal

import tokenizers
import torch
import transformers

from compile.plan import BuildPlan
from compile.tasks.evaluation import F1Loss
from compile.verify import TOLERANCES, BucketComparison, share_equal
from corelane import __version__
from corelane.artifacts.manifest import (
    TOKENIZER_NAME,
    BucketFile,
    Coverage,
    Format,
    Manifest,
    NumberFormat,
    Target,
    digest_file,
)
from corelane.domain.jobs import DEFAULT_TASK
from corelane.engine.buckets import Bucket

#: The loss if F1 was not measured.
NO_LOSS = F1Loss(0.0, 0, "")


@dataclass(frozen=True, slots=True)
class Toolchain:
    """What made an artifact, and for which target.

    ``trial`` holds the speeds by which ``auto`` chose, ``extra_files`` the files that belong to no bucket.
    """

    target: Target
    dtype: NumberFormat
    compiler: str
    compiler_args: list[str]
    tools: Mapping[str, str]
    cores: int = 1
    coverage: Coverage | None = None
    verified: bool = True
    format: Format = "torchscript"
    trial: Mapping[str, float] = field(default_factory=dict)
    extra_files: tuple[str, ...] = ()


def host_tools() -> dict[str, str]:
    """Return the versions of this process's own libraries."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def bucket_name(bucket: Bucket) -> str:
    """Return the name of the TorchScript file made for a bucket; longer buckets may share the file."""
    return f"bs{bucket.rows}-len{bucket.length}.pt"


def make_bucket(bucket: Bucket, file: str, size: int, compile_s: float, neffs: Sequence[str] = ()) -> BucketFile:
    """Return the record of a bucket of ``size`` bytes, before it is measured."""
    return BucketFile(
        rows=bucket.rows,
        length=bucket.length,
        file=file,
        bytes=size,
        compile_s=round(compile_s, 2),
        batch_ms=0,
        max_logit_error=0,
        neffs=list(neffs),
    )


def with_measures(bucket: BucketFile, compared: BucketComparison) -> BucketFile:
    """Return the bucket's record with the measured time and error."""
    measured = {"batch_ms": round(compared.batch_s * 1000, 3), "max_logit_error": compared.logit_error}
    return bucket.model_copy(update=measured)


def make_manifest(
    plan: BuildPlan,
    made_by: Toolchain,
    folder: Path,
    buckets: Sequence[BucketFile],
    compared: Sequence[BucketComparison] = (),
    loss: F1Loss = NO_LOSS,
) -> Manifest:
    """Return the manifest of the buckets in ``folder``; without ``compared`` a draft, by which they can be loaded."""
    source = plan.model.source
    schema_version: Literal[1, 2, 3, 4, 5] = 1 if plan.model.spec.template is None else 2
    if len({bucket.length for bucket in buckets}) < len(buckets):
        schema_version = 3
    if source.task != DEFAULT_TASK:
        schema_version = 4
    if plan.model.kept:
        schema_version = 5
    files = [TOKENIZER_NAME, *plan.model.kept, *(name for bucket in buckets for name in (bucket.file, *bucket.neffs))]
    return Manifest(
        schema_version=schema_version,
        name=plan.name,
        version=source.version,
        task=source.task,
        facts=dict(plan.model.facts),
        source=source.label,
        source_digest=source.digest,
        target=made_by.target,
        format=made_by.format,
        dtype=made_by.dtype,
        compiler=made_by.compiler,
        compiler_args=made_by.compiler_args,
        tools={"corelane": __version__, **made_by.tools, "tokenizers": tokenizers.__version__},
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        max_length=max(bucket.length for bucket in buckets),
        flexible_rows=bool(compared) and all(one.flexible_rows for one in compared),
        flexible_lengths=bool(compared) and all(one.flexible_lengths for one in compared),
        tokenizer=plan.model.spec,
        no_answer_threshold=source.no_answer_threshold,
        tolerance=TOLERANCES[made_by.dtype].logit,
        answers_equal=share_equal(compared) if made_by.verified else 0.0,
        f1_loss=loss.points,
        f1_questions=loss.items,
        f1_source=loss.label,
        verified=made_by.verified,
        cores=made_by.cores,
        coverage=made_by.coverage,
        trial=dict(made_by.trial),
        buckets=list(buckets),
        files={name: _digest(folder / name) for name in (*files, *made_by.extra_files)},
    )


def _digest(path: Path) -> str:
    """Return the digest of a file that this process made. Computed again only if the file changed."""
    about = path.stat()
    return _digest_once(path, about.st_mtime_ns, about.st_size)


@lru_cache
def _digest_once(path: Path, _changed_ns: int, _size: int) -> str:
    return digest_file(path)
