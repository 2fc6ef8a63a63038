"""The manifest of an artifact in the making: what it is, what made it, how well it agrees."""

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import tokenizers
import torch
import transformers

from compile.cpu import COMPILER, Dtype, choose_attention
from compile.exam import Loss
from compile.packing import PACKED, PLAIN, packs
from compile.plan import Plan
from compile.verify import TOLERANCES, Findings, share_equal
from corelane import __version__
from corelane.artifacts import TOKENIZER_NAME, BucketFile, Manifest, digest_file

#: Of a draft, which nobody examined.
NO_LOSS = Loss(0.0, 0, "")


def make_manifest(
    plan: Plan,
    dtype: Dtype,
    folder: Path,
    buckets: Sequence[BucketFile],
    findings: Sequence[Findings] = (),
    loss: Loss = NO_LOSS,
) -> Manifest:
    """The manifest of these buckets, whose files lie in ``folder``; without findings it is a draft to load them by."""
    source = plan.model.source
    files = [TOKENIZER_NAME, *(bucket.file for bucket in buckets)]
    return Manifest(
        name=plan.name,
        version=source.version,
        source=source.label,
        source_digest=source.digest,
        target="cpu",
        dtype=dtype,
        compiler=COMPILER,
        compiler_args=[
            f"attention={choose_attention(plan.model.network, dtype)}",
            PACKED if packs(dtype) else PLAIN,
        ],
        tools=_tools(),
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        max_length=max(bucket.length for bucket in buckets),
        flexible_rows=bool(findings) and all(one.flexible_rows for one in findings),
        tokenizer=plan.model.spec,
        no_answer_threshold=source.no_answer_threshold,
        tolerance=TOLERANCES[dtype].logit,
        answers_equal=share_equal(findings),
        f1_loss=loss.points,
        f1_questions=loss.questions,
        f1_source=loss.label,
        trial={str(name): speed for name, speed in plan.speeds.items()},
        buckets=list(buckets),
        files={name: digest_file(folder / name) for name in files},
    )


def _tools() -> dict[str, str]:
    return {
        "corelane": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }
