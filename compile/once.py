"""Compile a model for the CPU, unless this user did so before with the same code, libraries and kind of CPU.

Compiling takes 19 s of CPU time, most of it to verify every bucket. Copying an artifact takes almost none. The key
covers everything that the result depends on: the model's files, the options, the code that compiles and checks, the
versions of its libraries, and the CPU, for whose kind the dtype was chosen.
"""

import hashlib
import platform
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from inspect import getfile
from pathlib import Path

from compile.model.source import find_source
from compile.publish import building, publish_artifact
from corelane.artifacts.cache import ArtifactCache, copy_files, cpu_name, key_of
from corelane.artifacts.instructions import instruction_sets
from corelane.artifacts.manifest import Artifact, artifact_path, digest_file
from corelane.engine.backends.added import added_formats
from corelane.engine.buckets import AUTO_BUCKETS
from corelane.settings import Settings
from corelane.settings.fields import kernel_environment

#: The code on which a compiled artifact depends, relative to the folder of all packages.
MAKERS = ("compile", "corelane/engine", "corelane/artifacts", "corelane/tasks")

#: The libraries on which a compiled artifact depends, besides those of formats that plugins add.
LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "numpy")

#: The defaults of `corelane compile`, which ``serve`` uses.
PLAIN = {"buckets": AUTO_BUCKETS, "dtype": "auto", "format": "auto"}


def compile_once(
    source: str, name: str, settings: Settings, options: dict[str, str], build: Callable[[], Artifact]
) -> Artifact:
    """Return the artifact of a source for the CPU: copied from the user's cache, or built and stored there.

    ``options`` are the options that were given. Raises whatever ``build`` raises.
    """
    if (root := settings.artifact_cache_root) is None:
        return build()
    key, kept = _key(source, name, settings, options), ArtifactCache(root)
    with kept.turn(key):
        if (artifact := take_kept(source, name, settings, options)) is None:
            artifact = build()
            kept.keep(key, artifact)
        return artifact


def take_kept(source: str, name: str, settings: Settings, options: dict[str, str]) -> Artifact | None:
    """Copy the artifact of a source from the user's cache; None if it is not there. Raises CompileFailed."""
    if (root := settings.artifact_cache_root) is None:
        return None
    found = find_source(source, settings.models_dir, task=options.get("task"))
    kept = ArtifactCache(root).fetch(_key(source, name, settings, options), f"{name}@{found.version}", "cpu")
    if kept is None:
        return None
    with building(settings.artifact_root, kept.manifest.bytes) as aside:
        copy_files(kept, aside)
        place = artifact_path(settings.artifact_root, name, found.version, "cpu")
        return publish_artifact(aside, place, kept.manifest, found.folder)


def _key(source: str, name: str, settings: Settings, options: dict[str, str]) -> str:
    found = find_source(source, settings.models_dir, task=options.get("task"))
    return key_of({"source": found.digest, "label": found.label, "name": name, "options": options} | _toolchain())


def _toolchain() -> dict[str, object]:
    added = [each.library for each in added_formats().values()]
    return {
        "code": _digest_code(),
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in (*LIBRARIES, *added)},
        "cpu": [platform.machine(), cpu_name(), *instruction_sets()],
        "kernels": kernel_environment(),
    }


@cache
def _digest_code() -> str:
    top = Path(__file__).parents[1]
    digest = hashlib.sha256()
    added = [Path(getfile(type(each))).parent for each in added_formats().values()]
    for folder in (*(top / maker for maker in MAKERS), *added):
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{path.relative_to(folder.parent)}\0{digest_file(path)}\n".encode())
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
