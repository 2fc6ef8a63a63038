"""Neuron for tests: artifacts as its stand-in runs them, and processes that see its machine."""

import importlib
import json
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from corelane.artifacts.manifest import MANIFEST_NAME, TOKENIZER_NAME, Artifact, digest_file, read_artifact
from corelane.plugins.backends.neuron.chips import CHIPS

STAND_IN = Path(__file__).parents[1] / "neuron_stand_in"

if TYPE_CHECKING:
    import neuron_runtime  # noqa: F401  # so that it is checked
    from neuron_machine import Machine as Machine
    from neuron_machine import holder as holder
    from neuron_machine import inject as inject
    from neuron_machine import take_core as take_core
else:
    # Only while these two are imported: that a Neuron package can be imported is for tests to choose.
    sys.path.insert(0, str(STAND_IN))
    machine = importlib.import_module("neuron_machine")
    Machine, inject, holder, take_core = machine.Machine, machine.inject, machine.holder, machine.take_core
    sys.path.remove(str(STAND_IN))


def save_neuron_artifact(source: Artifact, root: Path, target: str, cores: int = 1, **changes: Any) -> Artifact:
    """Save an artifact for CPUs as if it were compiled for a Neuron chip: one file a bucket, fixed shapes."""
    import torch

    from corelane.engine.backends.cpu import torchscript_warnings_silenced

    manifest = source.manifest
    folder = root / manifest.name / manifest.version / target
    folder.mkdir(parents=True)
    (folder / TOKENIZER_NAME).write_bytes(source.file(TOKENIZER_NAME).read_bytes())
    buckets, names = [], [TOKENIZER_NAME]
    for bucket in manifest.buckets:
        name = f"bs{bucket.rows}-len{bucket.length}"
        shape = [bucket.rows, bucket.length]
        facts = {"family": CHIPS[target].package, "target": target, "shapes": [shape] * 3, "pipeline_cores": cores}
        with torchscript_warnings_silenced():
            module = torch.jit.load(source.file(bucket.file))
            torch.jit.save(module, folder / f"{name}.pt", _extra_files={"neuron.json": json.dumps(facts)})
        (folder / f"{name}.neff").write_bytes(b"NEFF of " + name.encode())
        names += [f"{name}.pt", f"{name}.neff"]
        size = (folder / f"{name}.pt").stat().st_size
        buckets.append(bucket.model_copy(update={"file": f"{name}.pt", "bytes": size}))
    update = {
        "target": target,
        "cores": cores,
        "flexible_rows": False,
        "buckets": buckets,
        "files": {name: digest_file(folder / name) for name in names},
        **changes,
    }
    (folder / MANIFEST_NAME).write_text(manifest.model_copy(update=update).model_dump_json())
    return read_artifact(folder)


def neuron_environment(machine: Path) -> dict[str, str]:
    """Return the environment of a process on a machine of the stand-in."""
    paths = {"PYTHONPATH": str(STAND_IN), "PATH": str(STAND_IN / "bin")}
    joined = {name: os.pathsep.join([path, *filter(None, [os.environ.get(name)])]) for name, path in paths.items()}
    return {**joined, "NEURON_STAND_IN": str(machine)}


def save_neuron_python(path: Path) -> Path:
    """Save a Python that has torch and NumPy, and nothing of Corelane: as the image for inf1 has one beside ours."""
    packages = sysconfig.get_path("purelib")
    # Without `site` no .pth file is read, and Corelane stands in one.
    path.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n')
    path.chmod(0o755)
    return path


@contextmanager
def neuron_process(folder: Path, machine: Machine, visible: str | None, **env: str) -> Iterator[Path]:
    """Play a process on such a machine that was started for these cores; yield the machine's folder."""
    place = machine.save(folder / "machine")
    changes = neuron_environment(place) | env | ({} if visible is None else {"NEURON_RT_VISIBLE_CORES": visible})
    with mock.patch.dict(os.environ, changes), mock.patch.object(sys, "path", [str(STAND_IN), *sys.path]):
        if visible is None:
            os.environ.pop("NEURON_RT_VISIBLE_CORES", None)
        runtime: Any = importlib.import_module("neuron_runtime")
        try:
            yield place
        finally:
            runtime.uninstall()
