"""Trace for Neuron: a script for a process of its own.

It needs torch, transformers, NumPy and a Neuron package, nothing of Corelane, and no Python newer than 3.9: inf1's last
packages are for torch 1.13. ``children`` starts it and reads its results.

    tracer.py probe PACKAGE                    print the installed versions as JSON
    tracer.py trace|analyze SPEC               do what the JSON file says and write the result to another file

Standard input is a pipe that closes when the parent is gone. The script then ends itself and the compiler that it
started.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import re
import shutil
import signal
import sys
import threading
import time
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

#: Distributions whose versions decide the result.
DISTRIBUTIONS = ("torch", "transformers", "torch-neuronx", "neuronx-cc", "torch-neuron", "neuron-cc", "numpy")

#: An inf1 artifact with more bytes of weights than this does not fit into one piece.
SEPARATE_WEIGHTS_BYTES = 1_900_000_000

#: How the text about a package without ``trace`` begins; its version follows.
NO_TRACE = "does not trace: "

#: The warning of torch_neuronx when the traced graph drops an input.
UNUSED_INPUT, INPUT_NUMBER = "input tensor that was unused", re.compile(r"index=(\d+)")


class TracerRefused(Exception):
    """A foreseen failure; the parent explains it by ``kind``."""

    def __init__(self, kind: str, text: str, missing: Any = None) -> None:
        super().__init__(text)
        self.result = {"error": kind, "text": text, "missing": missing}


def main(argv: list[str]) -> int:
    """Run one of the modes; an error becomes a result, and a traceback on standard error."""
    if argv[0] == "probe":
        return _write(sys.stdout, _caught(lambda: probe(argv[1])))
    end_with_parent()
    spec = json.loads(Path(argv[1]).read_text(encoding="utf-8"))
    work = {"trace": trace, "analyze": analyze}[argv[0]]
    with Path(spec["result"]).open("w", encoding="utf-8") as stream:
        _write(stream, _caught(lambda: work(spec)))
    return 0


def probe(package: str) -> dict[str, Any]:
    """Import the package and return the installed versions."""
    import_package(package)
    from importlib import metadata

    versions = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"versions": versions}


def trace(spec: dict[str, Any]) -> dict[str, Any]:
    """Trace one bucket and write the file and its NEFFs to the output of the spec."""
    package = import_package(spec["package"])
    import torch

    logging.basicConfig(level=logging.INFO, format="%(levelname)s:%(name)s:%(message)s", stream=sys.stderr, force=True)
    module, example = load(spec), example_of(spec)
    arguments = {"compiler_workdir": spec["workdir"], "compiler_args": spec["compiler_args"]}
    if spec["package"] == "torch_neuronx":
        arguments["cpu_backend"] = spec["cpu_backend"]
    elif weight_bytes(module) > SEPARATE_WEIGHTS_BYTES:
        arguments["separate_weights"] = True
    started = time.monotonic()
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        traced = package.trace(module, example, **arguments)
    seconds = time.monotonic() - started
    check_warnings(caught, () if spec["passes_token_types"] else (2,))
    torch.jit.save(traced, spec["output"])
    keep_neffs(Path(spec["workdir"]), Path(spec["output"]))
    return {"seconds": seconds}


def analyze(spec: dict[str, Any]) -> dict[str, Any]:
    """Find out which operators the compiler takes, by trying them."""
    package = import_package(spec["package"])
    found = package.analyze(
        load(spec), example_of(spec), compiler_workdir=spec["workdir"], is_hf_transformers=True, cleanup=True
    )
    found["unsupported_operators"] = [
        {key: str(each.get(key, ""))[:500] for key in ("kind", "failureAt", "call")}
        for each in found.get("unsupported_operators", [])
    ]
    return {"analysis": found}


def import_package(name: str) -> Any:
    """Import the Neuron package; raise TracerRefused, with the module that is missing, or if it does not trace."""
    try:
        package = import_module(name)
    except ImportError as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        raise TracerRefused("import", str(error), missing) from error
    if not hasattr(package, "trace"):
        raise TracerRefused("import", NO_TRACE + str(getattr(package, "__version__", "of an unknown version")))
    return package


def load(spec: dict[str, Any]) -> Any:
    """Load the network, eager and cast, with three positional inputs."""
    import torch
    import transformers

    class PositionalNetwork(torch.nn.Module):
        """Three int64 tensors in, a tuple of fp32 outputs out."""

        def __init__(self, network: Any, passes_token_types: bool) -> None:
            super().__init__()
            self.network = network
            self.passes_token_types = passes_token_types

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            types = {"token_type_ids": token_type_ids} if self.passes_token_types else {}
            outputs = self.network(input_ids=input_ids, attention_mask=attention_mask, **types)
            return tuple(outputs[name].float() for name in spec["outputs"])

    loader, eager = getattr(transformers, spec["loader"]), {"attn_implementation": "eager"}
    network = loader.from_pretrained(spec["folder"], trust_remote_code=False, **eager)
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    network = network.to(dtypes[spec["weights"]]).eval()
    return PositionalNetwork(network, spec["passes_token_types"]).eval()


def example_of(spec: dict[str, Any]) -> Any:
    """Read the example inputs as int64 tensors."""
    import numpy as np
    import torch

    with np.load(spec["example"]) as arrays:
        names = ("input_ids", "attention_mask", "token_type_ids")
        return tuple(torch.from_numpy(np.ascontiguousarray(arrays[name]).astype(np.int64)) for name in names)


def weight_bytes(module: Any) -> int:
    """Return the bytes of a module's weights."""
    return sum(each.numel() * each.element_size() for each in module.parameters())


def check_warnings(caught: list[warnings.WarningMessage], allowed: tuple[int, ...]) -> None:
    """Print the warnings; raise TracerRefused for an unused input of the graph, but for those in ``allowed``.

    The text of the error is the number of the input, or -1 if the warning gave none.
    """
    unused = []
    for each in caught:
        sys.stderr.write("%s: %s\n" % (each.category.__name__, each.message))  # noqa: UP031
        if UNUSED_INPUT in str(each.message):
            number = INPUT_NUMBER.search(str(each.message))
            unused.append(int(number.group(1)) if number else -1)
    if unused == [-1] and allowed:
        return
    for index in unused:
        if index not in allowed:
            raise TracerRefused("unused", str(index))


def keep_neffs(workdir: Path, output: Path) -> None:
    """Copy every NEFF of the compiler beside the traced file, the largest first."""
    found = sorted(workdir.rglob("*.neff"), key=lambda path: (-path.stat().st_size, str(path)))
    for number, path in enumerate(found):
        suffix = ".neff" if number == 0 else ".%d.neff" % number  # noqa: UP031
        shutil.copyfile(str(path), str(output.with_suffix(suffix)))


def end_with_parent() -> None:
    """End this process and all it started when standard input closes."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _caught(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return work()
    except TracerRefused as error:
        return error.result
    except Exception as error:
        traceback.print_exc()
        return {
            "error": "failed",
            "text": str(error),
            "type": type(error).__name__,
            "errno": getattr(error, "errno", None),
        }


def _write(stream: Any, result: dict[str, Any]) -> int:
    stream.write(json.dumps(result))
    return 1 if "error" in result else 0


if __name__ == "__main__":
    # Do not import from this folder: its modules share names with others.
    sys.path.pop(0)
    sys.exit(main(sys.argv[1:]))
