"""What both stand-in packages share: starting the stand-in compiler, marking artifacts, and faults on demand."""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

BIN = Path(__file__).parent / "bin"

#: Marks of traced modules, by the identity of the module, which is kept beside them.
MARKS: dict[int, tuple[Any, dict[str, Any]]] = {}

_save = torch.jit.save


def has_device() -> bool:
    return bool(os.environ.get("NEURON_STAND_IN"))


def read_arguments(arguments: str | Sequence[str] | None) -> list[str]:
    return shlex.split(arguments) if isinstance(arguments, str) else list(arguments or [])


def value_of(arguments: Sequence[str], name: str) -> str | None:
    """Return the last value given for an argument."""
    found = None
    for position, argument in enumerate(arguments):
        if argument == name and position + 1 < len(arguments):
            found = arguments[position + 1]
        elif argument.startswith(f"{name}="):
            found = argument.partition("=")[2]
    return found


def count_operators(graph: Any) -> dict[str, int]:
    """Return how often each operator is in a graph."""
    return dict(Counter(node.kind() for node in graph.nodes() if node.kind().startswith("aten::")))


def run_compiler(name: str, arguments: Sequence[str], workdir: str | None, content: bytes) -> Path:
    """Start the compiler as the real packages do; its NEFF, whose name carries a hash."""
    folder = Path(workdir or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    graph = folder / "graph.hlo"
    graph.write_bytes(content)
    neff = folder / f"MODULE_{abs(hash(content)) % 10**8:08d}.neff"
    command = [sys.executable, str(BIN / name), "compile", str(graph), "--output", str(neff), *arguments]
    (folder / "command.txt").write_text(shlex.join(command))
    status = subprocess.run(command, check=False).returncode
    if status:
        raise RuntimeError(f"{name} failed with {status}")
    return neff


def mark(module: Any, marks: dict[str, Any]) -> Any:
    MARKS[id(module)] = (module, marks)
    return module


def save_marked(module: Any, file: Any, _extra_files: Mapping[str, Any] | None = None) -> None:
    """torch.jit.save, which writes a module's mark into the file."""
    marks = MARKS.get(id(module), (None, None))[1]
    extra = dict(_extra_files or {})
    if marks is not None:
        extra["neuron.json"] = json.dumps(marks)
    _save(module, file, _extra_files=extra)


def install_marks() -> None:
    torch.jit.save = save_marked


def die_if_asked() -> None:
    """Play the fault `tracer-killed`: as if the kernel took this process for its memory."""
    if os.environ.get("NEURON_STAND_IN_FAULT") == "tracer-killed":
        os.kill(os.getpid(), signal.SIGKILL)
