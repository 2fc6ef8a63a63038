"""Find a model's files, and make the digest that becomes its version.

A name is looked up among the models that come with Corelane, then as a local folder, then on the Hugging Face hub. The
hub's cache holds a downloaded model. The digest covers every file that can change a result. It does not cover paths.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from compile.model.hub import HUB_ID, Report, download
from compile.model.refusing import refusing
from compile.model.weights import ADAPTER, check_fetched, check_form, weight_files
from compile.tasks.sentence_files import MODULES, SENTENCE_FILES, read_file
from compile.tasks.task import compile_task, task_of
from corelane.artifacts.calibration import SHIPPED_NAME, parse_calibration
from corelane.artifacts.manifest import FINGERPRINT_CHARS, digest_file
from corelane.domain.jobs import DEFAULT_TASK
from corelane.errors import ArtifactRefused, ModelRefused

#: The models that come with Corelane.
MODELS = Path(__file__).resolve().parents[2] / "models"

CONFIG_NAME = "config.json"

#: An optional file in a model's folder, ``{"no_answer_threshold": …}``: the threshold that the model is served with.
SERVING_NAME = "corelane.json"

#: The files of a model, apart from its weights.
SMALL_FILES = (
    CONFIG_NAME,
    ADAPTER,
    SERVING_NAME,
    "tokenizer*.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "*.model",
)

#: Weight files to download, by preference: a later kind only if the hub has none of an earlier one.
WEIGHTS = (
    ("model*.safetensors", "model*.safetensors.index.json"),
    ("pytorch_model*.bin", "pytorch_model*.bin.index.json"),
)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model's files on this disk; ``label`` is their hub id or folder name."""

    label: str
    folder: Path
    digest: str
    no_answer_threshold: float
    task: str = DEFAULT_TASK

    @property
    def version(self) -> str:
        """The immutable version of these files."""
        return self.digest[:FINGERPRINT_CHARS]


def find_source(
    model: str, endpoint: str | None = None, task: str | None = None, report: Report = lambda *_: None
) -> ModelSource:
    """Find a model, and download it if necessary; raises ModelRefused, or CompileFailed if the hub does not respond.

    ``endpoint`` is the hub's address, None for the default; if ``task`` is None, the model's head determines it.
    """
    label, folder = _find_folder(model, endpoint, report)
    with refusing(label, f"{folder} cannot be used"):
        check_form(label, folder)
        if not any((folder / name).is_file() for name in (CONFIG_NAME, MODULES)):
            raise ModelRefused(f"{folder} holds no {CONFIG_NAME}: it is not a model in Hugging Face layout")
        config = read_file(label, folder / CONFIG_NAME)
        task = task or task_of(label, config.get("architectures") or [], folder, config)
        check_fetched(label, {*_files(folder), *_match(folder, compile_task(task).files)})
        digest = digest_source(folder, task)
    source = ModelSource(label, folder, digest, _read_threshold(folder / SERVING_NAME), task)
    _check_calibration(folder / SHIPPED_NAME, source.version)
    return source


def _find_folder(model: str, endpoint: str | None, report: Report) -> tuple[str, Path]:
    could_be_hub_id = HUB_ID.fullmatch(model) is not None
    if could_be_hub_id and "/" not in model and (MODELS / model).is_dir():
        return model, MODELS / model
    local = Path(model).resolve()
    if model and local.is_dir():
        return local.name, local
    if model and local.is_file():
        raise ModelRefused(f"{model} is a file: give the folder that holds it and the model's other files")
    if not could_be_hub_id:
        raise ModelRefused(f"there is no folder {model!r}; give a folder, a Hugging Face id or a name in {MODELS}")
    kinds = [(*weights, *SMALL_FILES, *SENTENCE_FILES, SHIPPED_NAME) for weights in WEIGHTS]
    return model, download(model, kinds, endpoint, report)


def digest_source(folder: Path, task: str = DEFAULT_TASK) -> str:
    """Return the SHA-256 over the names and contents of a model's files, sorted by name, and over its task."""
    digest = hashlib.sha256()
    for path in sorted(_files(folder), key=lambda path: path.name):
        digest.update(f"{path.name}\0{digest_file(path)}\n".encode())
    if task != DEFAULT_TASK:
        for path in sorted(_match(folder, compile_task(task).files)):
            digest.update(f"{path.relative_to(folder)}\0{digest_file(path)}\n".encode())
        digest.update(f"{task}\n".encode())
    return digest.hexdigest()


def _files(folder: Path) -> set[Path]:
    return {*_match(folder, SMALL_FILES), *weight_files(folder.name, folder)}


def _match(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    return [path for pattern in patterns for path in folder.glob(pattern) if path.is_file()]


def _check_calibration(path: Path, version: str) -> None:
    """Raise ModelRefused if the calibration that comes with a model is damaged or was made for other weights."""
    if path.is_file():
        try:
            parse_calibration(path.read_bytes(), version, path)
        except ArtifactRefused as error:
            raise ModelRefused(error.detail) from None
        except OSError as error:
            raise ModelRefused(f"{path} cannot be read: {error.strerror or error}") from None


def _read_threshold(path: Path) -> float:
    if not path.is_file():
        return 0.0
    try:
        return float(json.loads(path.read_bytes()).get("no_answer_threshold", 0.0))
    except (ValueError, TypeError, AttributeError) as error:
        raise ModelRefused(f'{path} makes no sense; write {{"no_answer_threshold": 0.0}}') from error
