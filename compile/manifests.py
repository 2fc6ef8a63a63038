"""The manifest of an artifact in the making: what it is, what made it, how well it agrees."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import tokenizers
import torch
import transformers

from compile.cpu import COMPILER, Way, choose_attention, dtype_of
from compile.exam import Loss
from compile.neuron.expected import EXPECTED_NAME
from compile.openvino import COMPILER as OPENVINO_COMPILER
from compile.packing import PACKED, PLAIN, packs
from compile.plan import Plan
from compile.verify import TOLERANCES, Findings, share_equal
from corelane import __version__
from corelane.artifacts.instructions import instruction_sets
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
from corelane.engine.backends.openvino import require_openvino, weights_of


@dataclass(frozen=True, slots=True)
class Toolchain:
    """What made an artifact, and for what."""

    target: Target
    dtype: NumberFormat
    compiler: str
    compiler_args: list[str]
    tools: dict[str, str]
    cores: int = 1
    coverage: Coverage | None = None
    verified: bool = True
    format: Format = "torchscript"


def cpu_toolchain(plan: Plan, way: Way) -> Toolchain:
    """This process's own torch, or OpenVINO."""
    dtype = dtype_of(way)
    arguments = [f"attention={choose_attention(plan.model.network, dtype)}", PACKED if packs(dtype) else PLAIN]
    tools = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cpu": " ".join(instruction_sets()) or torch.backends.cpu.get_cpu_capability(),
    }
    if way == "openvino int8" and plan.graph is not None:
        tools["openvino"] = require_openvino().__version__
        return Toolchain("cpu", dtype, OPENVINO_COMPILER, plan.graph.arguments, tools, format="openvino")
    return Toolchain("cpu", dtype, COMPILER, arguments, tools)


#: Of a draft, which nobody examined.
NO_LOSS = Loss(0.0, 0, "")


def make_manifest(
    plan: Plan,
    made_by: Toolchain,
    folder: Path,
    buckets: Sequence[BucketFile],
    findings: Sequence[Findings] = (),
    loss: Loss = NO_LOSS,
) -> Manifest:
    """The manifest of these buckets, whose files lie in ``folder``; without findings it is a draft to load them by."""
    source = plan.model.source
    files = [TOKENIZER_NAME, *(name for bucket in buckets for name in (bucket.file, *bucket.neffs))]
    if made_by.format == "openvino":
        files.extend(weights_of(bucket.file) for bucket in buckets)
    if not made_by.verified:
        files.append(EXPECTED_NAME)
    return Manifest(
        name=plan.name,
        version=source.version,
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
        flexible_rows=bool(findings) and all(one.flexible_rows for one in findings),
        tokenizer=plan.model.spec,
        no_answer_threshold=source.no_answer_threshold,
        tolerance=TOLERANCES[made_by.dtype].logit,
        answers_equal=share_equal(findings) if made_by.verified else 0.0,
        f1_loss=loss.points,
        f1_questions=loss.questions,
        f1_source=loss.label,
        verified=made_by.verified,
        cores=made_by.cores,
        coverage=made_by.coverage,
        trial={str(name): speed for name, speed in plan.speeds.items()},
        buckets=list(buckets),
        files={name: digest_file(folder / name) for name in files},
    )
