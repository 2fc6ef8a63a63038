"""Compiled artifacts on disk: the manifest, where things lie, and the checks made before anything is loaded.

An artifact lies in ``<root>/<model>/<version>/<target>/``: ``manifest.json``, ``tokenizer.json`` and one file per
bucket. The version is a fingerprint of the model's source files (weights, config, tokenizer), so one version may be
compiled for several targets and CPU kinds. Every file's SHA-256 stands in the manifest; nothing loads unless it
matches. No torch in here: the API reads manifests too.
"""

import hashlib
import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from corelane.errors import ArtifactRefused

#: Characters of the fingerprint that name a version: 48 bits, ample to tell the versions of one model apart.
FINGERPRINT_CHARS = 12

MANIFEST_NAME = "manifest.json"
TOKENIZER_NAME = "tokenizer.json"

#: Bytes read at a time when a file is digested.
DIGEST_CHUNK_BYTES = 1 << 20

MODEL_NAME = re.compile(r"^[a-z0-9][a-z0-9._-]{0,99}$")


class Record(BaseModel):
    """A frozen part of the manifest."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class BucketFile(Record):
    """One compiled shape and what was measured of it."""

    rows: int = Field(ge=1)
    length: int = Field(ge=8, description="Tokens a row.")
    file: str = Field(pattern=r"^[A-Za-z0-9._-]+$")
    bytes: int
    compile_s: float
    batch_ms: float = Field(description="Warm median time of one full batch on one core where it was compiled.")
    max_logit_error: float = Field(description="Largest |Δlogit| against eager fp32 on the sample texts.")


class TokenizerSpec(Record):
    """How a question and a stretch of context are put together for this model."""

    cls_id: int
    sep_id: int
    pad_id: int
    sep_count: int = Field(1, ge=1, le=2, description="Separators between question and context (RoBERTa: 2).")
    uses_token_types: bool = True


class Manifest(Record):
    """What an artifact is, where it came from, and how well it agrees with the model it was made from."""

    schema_version: Literal[1] = 1
    name: str
    version: str
    source: str = Field(description="Hugging Face id or folder name the model came from.")
    source_digest: str = Field(description="SHA-256 over the model's source files.")
    target: Literal["cpu"]
    format: Literal["torchscript"] = "torchscript"
    dtype: Literal["fp32", "bf16", "int8"]
    compiler: str
    compiler_args: list[str] = []
    tools: dict[str, str] = Field(description="Versions of the tools that made it.")
    created_at: str
    max_length: int = Field(description="Most tokens a window may have: the longest bucket.")
    flexible_rows: bool = Field(False, description="Whether a batch may have fewer rows than its bucket.")
    tokenizer: TokenizerSpec
    no_answer_threshold: float = 0.0
    tolerance: float = Field(0.0, ge=0, description="Largest |Δlogit| against eager fp32 that was allowed.")
    answers_equal: float = Field(1.0, ge=0, le=1, description="Share of sample answers equal to eager fp32.")
    f1_loss: float = Field(0.0, description="Points of F1 lost against eager fp32; below 0 they were gained.")
    f1_questions: int = Field(0, ge=0, description="Questions it was measured over; 0: not measured.")
    f1_source: str = Field("", description="Where they came from: `samples`, or the name of a file.")
    trial: dict[str, float] = Field(default_factory=dict, description="Sequences/s by dtype, where `auto` chose.")
    buckets: list[BucketFile] = Field(min_length=1)
    files: dict[str, str] = Field(description="SHA-256 of every other file of the artifact.")

    @property
    def version_id(self) -> str:
        """The immutable name of this version, as ``qa-minilm@3f2a…``."""
        return f"{self.name}@{self.version}"


class Artifact(Record):
    """A manifest and the folder it was read from."""

    path: Path
    manifest: Manifest

    def file(self, name: str) -> Path:
        """A file of the artifact."""
        return self.path / name


def artifact_path(root: Path, name: str, version: str, target: str) -> Path:
    """Where an artifact lies below the root."""
    return root / name / version / target


def digest_file(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(DIGEST_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def read_artifact(path: Path) -> Artifact:
    """Read a manifest; raises ArtifactRefused if it is missing or makes no sense."""
    try:
        manifest = Manifest.model_validate_json((path / MANIFEST_NAME).read_bytes())
    except FileNotFoundError:
        raise ArtifactRefused(f"{path} holds no {MANIFEST_NAME}; make it with `corelane compile`") from None
    except (OSError, ValidationError) as error:
        raise ArtifactRefused(f"{path / MANIFEST_NAME} cannot be read: {error}") from None
    return Artifact(path=path, manifest=manifest)


def check_files(artifact: Artifact) -> None:
    """Compare every file with its digest; raises ArtifactRefused naming the first that differs."""
    for name, expected in artifact.manifest.files.items():
        path = artifact.file(name)
        if Path(name).name != name or not path.is_file():
            raise ArtifactRefused(f"{path} is missing; compile {artifact.manifest.name} again")
        if digest_file(path) != expected:
            raise ArtifactRefused(f"{path} is damaged: its digest is not the manifest's; compile it again")
    named = {bucket.file for bucket in artifact.manifest.buckets} | {TOKENIZER_NAME}
    if missing := named - set(artifact.manifest.files):
        raise ArtifactRefused(f"{artifact.path / MANIFEST_NAME} has no digest for {', '.join(sorted(missing))}")


def list_artifacts(root: Path, target: str) -> list[Artifact]:
    """Every readable artifact of a target below the root, newest last; damaged manifests are left out."""
    found = []
    for manifest in root.glob(f"*/*/{target}/{MANIFEST_NAME}"):
        try:
            found.append(read_artifact(manifest.parent))
        except ArtifactRefused:
            continue
    return sorted(found, key=lambda artifact: artifact.manifest.created_at)


def find_artifact(root: Path, name: str, target: str) -> Artifact:
    """The artifact of ``name`` (newest version) or ``name@version``; raises ArtifactRefused if there is none."""
    base, _, version = name.partition("@")
    for artifact in reversed(list_artifacts(root, target)):
        if artifact.manifest.name == base and version in ("", artifact.manifest.version):
            return artifact
    raise ArtifactRefused(f"no artifact of {name} for target {target} below {root}; make it with `corelane compile`")


def model_name(source: str) -> str:
    """The short name of a model given as a name, a folder or a Hugging Face id."""
    tail = source.rstrip("/").rpartition("/")[2].lower()
    name = re.sub(r"[^a-z0-9._-]+", "-", tail).strip("-._")
    return name or "model"
