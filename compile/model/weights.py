"""The weights in a model's folder: which files count, and forms that are not read here."""

from collections.abc import Iterable
from pathlib import Path

from compile.tasks.sentence_files import read_file
from corelane.errors import ModelRefused

#: Files of weights, by preference, as transformers chooses. Each may lie in parts, which an index names.
WHOLE = ("model.safetensors", "pytorch_model.bin")

#: An adapter's settings. transformers would load it onto a model, if the package peft is there.
ADAPTER = "adapter_config.json"

#: Files of weights in other forms, by pattern.
OTHERS = {
    "*.gguf": "GGUF",
    "*.onnx": "ONNX",
    "onnx/*.onnx": "ONNX",
    "openvino/*.xml": "OpenVINO",
    "tf_model*.h5": "TensorFlow",
    "flax_model*.msgpack": "Flax",
}

#: The first bytes of a Git LFS pointer: Git LFS has not fetched the file yet.
POINTER = b"version https://git-lfs.github.com/spec/"


def weight_files(label: str, folder: Path) -> list[Path]:
    """Return the files that transformers loads weights from, the index first; raise ModelRefused if one is missing."""
    for whole in WHOLE:
        index, files = folder / f"{whole}.index.json", [folder / whole]
        if not files[0].is_file():
            if not index.is_file():
                continue
            parts = read_file(label, index).get("weight_map")
            if not isinstance(parts, dict):
                raise ModelRefused(f"{index.name} of {label} makes no sense: it has no `weight_map`")
            files = [index, *sorted({folder / str(name) for name in parts.values()})]
        if absent := [path.name for path in files if not (path.is_file() and path.stat().st_size)]:
            raise ModelRefused(f"{absent[0]} of {label} is missing or empty: fetch it again")
        return files
    return []


def check_form(label: str, folder: Path) -> None:
    """Raise ModelRefused if a folder is an adapter, or has its weights in another form alone."""
    if (folder / ADAPTER).is_file():
        raise ModelRefused(
            f"{label} has an adapter ({ADAPTER}): merge it into its model (peft's `merge_and_unload`) and save that"
        )
    form = next((form for pattern, form in OTHERS.items() if any(folder.glob(pattern))), None)
    if form and not weight_files(label, folder):
        raise ModelRefused(
            f"{folder} has weights for {form} alone, which Corelane does not read: take {' or '.join(WHOLE)}"
        )


def check_fetched(label: str, files: Iterable[Path]) -> None:
    """Raise ModelRefused if a file is the pointer of Git LFS in its place."""
    for path in files:
        with path.open("rb") as stream:
            if stream.read(len(POINTER)) == POINTER:
                raise ModelRefused(f"{path.name} of {label} is a pointer of Git LFS: run `git lfs pull` in its folder")
