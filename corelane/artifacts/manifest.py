"""Compiled artifacts on disk: the manifest, the layout of files, and the checks before anything is loaded.

An artifact is in ``<root>/<model>/<version>/<target>/``: ``manifest.json``, ``tokenizer.json`` and one file per bucket.
The version is a fingerprint of the model's source files (weights, config, tokenizer). So one version may be compiled
for several targets and, next to ``cpu/``, for several CPU kinds (``cpu-amx_bf16/``); each host uses the artifact that
suits its CPU. The manifest has the SHA-256 of every file; a file is loaded only if it matches. This module does not
import torch: the API reads manifests too.
"""

import hashlib
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from corelane.artifacts.calibration import Calibration, FrozenRecord
from corelane.artifacts.instructions import instruction_sets, kind_of, lacking, rank_of
from corelane.domain.jobs import DEFAULT_TASK
from corelane.errors import ArtifactRefused

#: Characters of the fingerprint in a version: 48 bits, enough to distinguish the versions of one model.
FINGERPRINT_CHARS = 12

#: The folder of artifacts in a data folder.
ARTIFACTS_NAME = "artifacts"

MANIFEST_NAME = "manifest.json"
TOKENIZER_NAME = "tokenizer.json"

#: Bytes read at a time when a file is digested.
DIGEST_CHUNK_BYTES = 1 << 20

MODEL_NAME = re.compile(r"^[a-z0-9][a-z0-9._-]{0,99}$")
MOST_NAME_CHARS = 100

#: A version's full name. It cannot contain a path out of the root.
VERSION_ID = re.compile(r"^[a-z0-9][a-z0-9._-]{0,99}@[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")

Target = Literal["cpu", "inf1", "inf2", "trn1", "trn2", "trn3", "cuda"]

#: The format of an artifact's files: TorchScript, or a graph and its weights as OpenVINO reads them.
Format = Literal["torchscript", "openvino"]

#: The number format in which an artifact's matrix products are computed.
NumberFormat = Literal["none", "fp32", "tf32", "bf16", "fp16", "fp8_e4m3", "int8"]


#: Advice about an artifact that was chosen for another CPU.
COMPILE_HERE = (
    "it answers rightly and may be slow: on a machine of this kind run `corelane compile MODEL --cpu-kind this`, which "
    "adds one for this kind beside it"
)


class BucketFile(FrozenRecord):
    """One compiled shape and its measurements."""

    rows: int = Field(ge=1)
    length: int = Field(ge=8, description="Tokens a row.")
    file: str = Field(pattern=r"^[A-Za-z0-9._-]+$")
    bytes: int
    compile_s: float
    batch_ms: float = Field(
        description="Warm median time of one full batch on one core where it was verified; 0 if it never ran."
    )
    max_logit_error: float = Field(description="Largest |Δlogit| against eager fp32 on the sample texts.")
    neffs: list[str] = Field(default=[], description="The Neuron executables inside the file, as files of their own.")


class Template(FrozenRecord):
    """The special tokens around a question and a stretch of context, and the token type of each part."""

    before: tuple[int, ...] = Field((), description="Tokens before the question.")
    between: tuple[int, ...] = Field((), description="Tokens between question and context.")
    after: tuple[int, ...] = Field((), description="Tokens after the context.")
    before_types: tuple[int, ...] = ()
    question_type: int = 0
    between_types: tuple[int, ...] = ()
    context_type: int = 0
    after_types: tuple[int, ...] = ()
    null_last: bool = Field(False, description="Whether the last token stands for no answer (XLNet), not the first.")

    @model_validator(mode="after")
    def _types_fit(self) -> Self:
        parts = ((self.before, self.before_types), (self.between, self.between_types), (self.after, self.after_types))
        if any(len(tokens) != len(types) for tokens, types in parts):
            raise ValueError("each special token needs a type")
        return self

    @property
    def specials(self) -> int:
        """Return how many special tokens a row has."""
        return len(self.before) + len(self.between) + len(self.after)

    def part_types(self) -> tuple[tuple[int, ...] | int, ...]:
        """Return the token types of the five parts of a row, in order."""
        return self.before_types, self.question_type, self.between_types, self.context_type, self.after_types


class TokenizerSpec(FrozenRecord):
    """How this model combines a question and a stretch of context.

    Most models do it like BERT or RoBERTa: ``[CLS] question [SEP] context [SEP]``. Any other way is a template.
    """

    cls_id: int
    sep_id: int
    pad_id: int
    sep_count: int = Field(1, ge=1, le=2, description="Separators between question and context (RoBERTa: 2).")
    uses_token_types: bool = True
    template: Template | None = Field(None, description="The way, if it is not BERT's or RoBERTa's.")
    single: Template | None = Field(None, description="The same for one text alone, if it is not `[CLS] text [SEP]`.")

    def layout(self) -> Template:
        """Return the layout of a row as a template."""
        if self.template is not None:
            return self.template
        context = int(self.uses_token_types)
        return Template(
            before=(self.cls_id,),
            between=(self.sep_id,) * self.sep_count,
            after=(self.sep_id,),
            before_types=(0,),
            between_types=(0,) * self.sep_count,
            context_type=context,
            after_types=(context,),
        )

    def single_layout(self) -> Template:
        """Return the layout of a row with one text alone as a template."""
        if self.single is not None:
            return self.single
        return Template(before=(self.cls_id,), after=(self.sep_id,), before_types=(0,), after_types=(0,))


class Coverage(FrozenRecord):
    """The operators of a model that the accelerator's compiler accepted. All others run on the CPU."""

    percent: float = Field(ge=0, le=100, description="Share of arithmetic operators that were compiled.")
    found_by: Literal["trace", "log", "analyze"] = Field(
        description="`trace`: compiled in one piece, so all; `log`: the compiler's count; `analyze`: tried one by one."
    )
    compiled: dict[str, int] = Field(default_factory=dict, description="Operators that were compiled, and how often.")
    not_compiled: dict[str, int] = Field(default_factory=dict, description="Those that were not, and how often.")
    reasons: dict[str, str] = Field(default_factory=dict, description="Why not, by operator, where it was said.")


class Manifest(FrozenRecord):
    """The description of an artifact: its parts, its origin, and how well it agrees with the model it was made from."""

    schema_version: Literal[1, 2, 3, 4, 5] = Field(
        1,
        description="2 if `tokenizer` has a template, 3 if a length has several row counts, 4 if it has another task, "
        "5 if its task keeps files of its own: older workers know none.",
    )
    name: str
    version: str
    task: str = Field(DEFAULT_TASK, description="What it was made for: the name of a task.")
    facts: dict[str, Any] = Field(
        default_factory=dict, description="What its task has to know of it: labels, pooling and so on."
    )
    source: str = Field(description="Hugging Face id or folder name the model came from.")
    source_digest: str = Field(description="SHA-256 over the model's source files.")
    target: Target
    format: Format = "torchscript"
    dtype: NumberFormat
    compiler: str
    compiler_args: list[str] = Field(default_factory=list)
    tools: dict[str, str] = Field(description="Versions of the tools that made it.")
    created_at: str
    max_length: int = Field(description="Most tokens a window may have: the longest bucket.")
    flexible_rows: bool = Field(False, description="Whether a batch may have fewer rows than its bucket.")
    flexible_lengths: bool = Field(False, description="Whether its rows may be shorter than its bucket's.")
    tokenizer: TokenizerSpec = TokenizerSpec(cls_id=0, sep_id=0, pad_id=0)
    no_answer_threshold: float = 0.0
    tolerance: float = Field(0.0, ge=0, description="Largest |Δlogit| against eager fp32 that was allowed.")
    answers_equal: float = Field(1.0, ge=0, le=1, description="Share of sample answers equal to eager fp32.")
    verified: bool = Field(
        True, description="Whether it was compared with eager fp32: not if it was compiled elsewhere."
    )
    cores: int = Field(1, ge=1, description="Neighbouring cores that one copy of the model runs on.")
    coverage: Coverage | None = Field(None, description="Operator coverage, of targets that have such a thing.")
    f1_loss: float = Field(0.0, description="Points of F1 lost against eager fp32; below 0 they were gained.")
    f1_questions: int = Field(0, ge=0, description="Questions it was measured over; 0: not measured.")
    f1_source: str = Field("", description="Where they came from: `samples`, or the name of a file.")
    trial: dict[str, float] = Field(default_factory=dict, description="Sequences/s by dtype, where `auto` chose.")
    buckets: list[BucketFile] = Field(description="Empty if nothing is compiled, as for a handler.")
    files: dict[str, str] = Field(description="SHA-256 of every other file of the artifact.")

    @property
    def version_id(self) -> str:
        """Return the immutable name of this version, as ``qa-minilm@3f2a…``."""
        return f"{self.name}@{self.version}"

    @property
    def cpu_kind(self) -> str:
        """Return the CPU kind that the artifact is for; empty if that is unknown, or the target is not cpu."""
        return kind_of(self.tools.get("cpu", "").split()) if self.target == "cpu" else ""

    @property
    def ragged_rows(self) -> bool:
        """Return whether linear layers leave out the padding of a batch, so that only attentions have any."""
        return "rows=ragged" in self.compiler_args

    @property
    def bytes(self) -> int:
        """Return the size of the compiled files; buckets may share one."""
        return sum({bucket.file: bucket.bytes for bucket in self.buckets}.values())


class Artifact(FrozenRecord):
    """A manifest, its folder, and the SHA-256 of the manifest; empty for an artifact that is being made."""

    path: Path
    manifest: Manifest
    digest: str = ""

    def file(self, name: str) -> Path:
        """Return the path of a file of the artifact."""
        return self.path / name

    def threshold(self, calibration: Calibration | None) -> float:
        """Return the threshold for "no answer": the calibration's, else the model's own."""
        known = None if calibration is None else calibration.no_answer_threshold
        return self.manifest.no_answer_threshold if known is None else known

    def summary(self, calibration: Calibration | None) -> dict[str, object]:
        """Return what the API shows of the version, with its calibration if it has one."""
        manifest = self.manifest
        ladder = sorted(manifest.buckets, key=lambda bucket: (bucket.length, bucket.rows))
        return {
            "name": manifest.name,
            "task": manifest.task,
            "facts": manifest.facts,
            "target": manifest.target,
            "dtype": manifest.dtype,
            "cpu_kind": manifest.cpu_kind,
            "buckets": [f"{bucket.rows}x{bucket.length}" for bucket in ladder],
            "bytes": manifest.bytes,
            "manifest_sha256": self.digest,
            "max_length": manifest.max_length,
            "no_answer_threshold": self.threshold(calibration),
            "calibrated": calibration is not None,
            "highest_precision": None if calibration is None else calibration.highest_precision,
            "verified": manifest.verified,
            "created_at": manifest.created_at,
        }


def missing_instructions(manifest: Manifest) -> list[str]:
    """Return the instruction sets that make an artifact's dtype fast and that this CPU lacks."""
    if manifest.target != "cpu":
        return []
    return lacking(manifest.tools.get("cpu", ""), manifest.dtype, instruction_sets())


def outgrown(manifest: Manifest, kind: str) -> bool:
    """Return whether an artifact was chosen on an earlier kind of CPU: another dtype may be faster here."""
    return 0 < rank_of(manifest.cpu_kind) < rank_of(kind)


def artifact_path(root: Path, name: str, version: str, target: str, kind: str = "") -> Path:
    """Return the folder of an artifact below the root; ``kind`` is its CPU kind, empty for the default."""
    return root / name / version / (f"{target}-{kind}" if kind else target)


def artifact_folders(parent: Path, target: str) -> list[Path]:
    """Return the folders with a version's artifacts for a target, of all CPU kinds."""
    folders = [parent / target, *(sorted(parent.glob("cpu-*")) if target == "cpu" else ())]
    return [folder for folder in folders if folder.is_dir()]


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(DIGEST_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def read_artifact(path: Path) -> Artifact:
    """Read a manifest; raises ArtifactRefused if it is missing or invalid."""
    try:
        content = (path / MANIFEST_NAME).read_bytes()
        manifest = Manifest.model_validate_json(content)
    except FileNotFoundError:
        raise ArtifactRefused(f"{path} holds no {MANIFEST_NAME}; make it with `corelane compile`") from None
    except (OSError, ValidationError) as error:
        raise ArtifactRefused(f"{path / MANIFEST_NAME} cannot be read: {_in_one_line(error)}") from None
    return Artifact(path=path, manifest=manifest, digest=hashlib.sha256(content).hexdigest())


def check_files(artifact: Artifact) -> None:
    """Compare every file with its digest; raises ArtifactRefused naming the first that differs."""
    for name in artifact.manifest.files:
        check_file(artifact, name)
    named = {bucket.file for bucket in artifact.manifest.buckets}
    if missing := (named and named | {TOKENIZER_NAME}) - set(artifact.manifest.files):
        raise _without_digest(artifact, missing)


def check_file(artifact: Artifact, name: str) -> None:
    """Compare a file with its digest; raises ArtifactRefused, also if the file is outside the artifact's folder."""
    path = artifact.file(name)
    if name not in artifact.manifest.files:
        raise _without_digest(artifact, {name})
    if Path(name).name != name or not path.is_file():
        raise ArtifactRefused(f"{path} is missing; compile {artifact.manifest.name} again")
    if not path.resolve().is_relative_to(artifact.path.resolve()):
        raise ArtifactRefused(f"{path} leads out of its artifact's folder; nothing from elsewhere is loaded")
    if digest_file(path) != artifact.manifest.files[name]:
        raise ArtifactRefused(f"{path} is damaged: its digest is not the manifest's; compile it again")


def _without_digest(artifact: Artifact, names: Collection[str]) -> ArtifactRefused:
    return ArtifactRefused(f"{artifact.path / MANIFEST_NAME} has no digest for {', '.join(sorted(names))}")


def check_identity(manifest: Manifest, version_id: str, target: str, path: Path | str) -> None:
    """Check that a manifest is for this version and target; raises ArtifactRefused."""
    if (manifest.version_id, manifest.target) != (version_id, target):
        raise ArtifactRefused(
            f"{path} holds {manifest.version_id} for target {manifest.target}, not {version_id} for {target}"
        )


def check_manifest(artifact: Artifact, expected: str) -> None:
    """Raise ArtifactRefused if the manifest does not have the expected SHA-256; an empty one matches any."""
    if expected and artifact.digest != expected:
        raise ArtifactRefused(
            f"{artifact.file(MANIFEST_NAME)} is not the one asked for: its digest is {artifact.digest}"
        )


def model_name(source: str) -> str:
    """Shorten a name, a folder or a Hugging Face id, without a revision behind an @, to a model name."""
    tail = source.rstrip("/").rpartition("/")[2].partition("@")[0].lower()
    name = re.sub(r"[^a-z0-9._-]+", "-", tail).strip("-._")[:MOST_NAME_CHARS]
    return name or "model"


def _in_one_line(error: Exception) -> str:
    """Return an error's text; for pydantic's list only the first entry, without the value."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
    return str(error)
