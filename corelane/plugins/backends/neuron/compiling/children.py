"""Start the processes that trace for Neuron, each in its own session, and make sure that all of them end.

Each child watches a pipe to this process. When the pipe closes, because this process ended or gave up, the child ends
itself and the compiler that it started.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from corelane.engine.backends.protocol import WindowBatch
from corelane.errors import CompileFailed, SetupError, last_line
from corelane.plugins.backends.neuron.chips import NeuronChip
from corelane.plugins.backends.neuron.compiling import tracer
from corelane.plugins.backends.neuron.packages import explain_import

TRACER = Path(tracer.__file__)

#: Importing a Neuron package takes seconds, longer on a busy machine.
PROBE_TIMEOUT_S = 300

#: How SIGKILL ends a process, as its status and as a shell reports it; the same of a compiler, in an error's text.
KILLED, COMPILER_KILLED = (-9, 137), re.compile(r"neuronx?-cc failed with (?:-9|137)\b")

#: What the Neuron runtime says where it finds no free core.
NO_DEVICE = ("num_devices > 0", "Runtime could not be initialized", "not available - Requested")


class Children:
    """Starts tracing processes in one interpreter, with one environment; ``close`` ends all of them."""

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        self.python = shutil.which(python) or python
        # The package calls the compiler by its bare name. The compiler lies beside the interpreter.
        path = os.pathsep.join([str(Path(self.python).parent.absolute()), environment.get("PATH", "")])
        self.environment = {**environment, "PATH": path}
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def probe(self, chip: NeuronChip) -> dict[str, str]:
        """Return the installed versions; raises SetupError if the Neuron package is missing."""
        try:
            done = subprocess.run(  # noqa: S603
                [self.python, str(TRACER), "probe", chip.package],
                env=self.environment,
                capture_output=True,
                timeout=PROBE_TIMEOUT_S,
                check=False,
            )
            found = json.loads(done.stdout.splitlines()[-1])
        except OSError as error:
            raise SetupError(
                f"{self.python} cannot be run: {error.strerror}; --neuron-python, or for inf1 CORELANE_NEURON_PYTHON, "
                "names the Python that has the Neuron packages"
            ) from None
        except subprocess.TimeoutExpired:
            raise SetupError(f"{self.python} needs more than {PROBE_TIMEOUT_S} s to import {chip.package}") from None
        except (ValueError, IndexError):
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"status {done.returncode}"]
            raise SetupError(f"{self.python} cannot import {chip.package}: {last[0]}") from None
        if "error" in found:
            if found["error"] == "failed":
                raise SetupError(f"{self.python} cannot import {chip.package}: {found['text']}")
            raise explain_import(chip.target, found["text"], found["missing"], f"{self.python} -m pip")
        return dict(found["versions"])

    def work(
        self,
        mode: str,
        spec: Mapping[str, Any],
        chip: NeuronChip,
        what: str,
        log: Path,
        variables: Mapping[str, str] = {},
    ) -> Any:
        """Run ``trace`` or ``analyze`` and return its result; raises CompileFailed or SetupError. Thread-safe."""
        request, result = Path(spec["workdir"]) / "request.json", Path(spec["result"])
        request.write_text(json.dumps(dict(spec)), encoding="utf-8")
        with log.open("wb") as stream:
            child = self.start([mode, str(request)], stream, variables)
            try:
                status = child.wait()
            finally:
                self.end(child)
        found = _read(result)
        if found is None or "error" in found:
            raise explain(status, found or {}, chip, what, log)
        return found

    def start(self, argv: Sequence[str], log: Any, variables: Mapping[str, str] = {}) -> subprocess.Popen[bytes]:
        """Start the script, which writes its output to ``log``."""
        with self._lock:
            if self._closed:
                raise CompileFailed("interrupted")
            child = subprocess.Popen(  # noqa: S603
                [self.python, str(TRACER), *argv],
                env=self.environment | dict(variables),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(child)
        return child

    def end(self, child: subprocess.Popen[bytes]) -> None:
        """End a process and everything it started."""
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdin is not None:
            child.stdin.close()
        with self._lock:
            self._running.discard(child)

    def close(self) -> None:
        """End every process; no process can be started afterwards."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for child in running:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def save_inputs(file: Path, batch: WindowBatch) -> None:
    """Write a batch in the form that the script reads."""
    ids, mask, types = batch.input_ids, batch.attention_mask, batch.token_type_ids
    np.savez(file, input_ids=ids, attention_mask=mask, token_type_ids=types)


def explain(
    status: int, result: Mapping[str, Any], chip: NeuronChip, what: str, log: Path
) -> CompileFailed | SetupError:
    """Return the error of a tracing process that ended with ``status``; ``log`` has the compiler's whole output."""
    kind, text = result.get("error"), str(result.get("text", ""))
    if kind == "import":
        return explain_import(chip.target, text, result.get("missing"))
    if any(sign in text for sign in NO_DEVICE):
        return SetupError(
            f"this machine has no free {chip.target} core: add --cpu-backend to compile without one, and run `corelane "
            "models verify` where it will serve"
        )
    if kind == "unused":
        return CompileFailed(
            f"{what}: the traced graph does not use input {text}, so the model would run as if it were not there: "
            "compile with the version of transformers in constraints/"
        )
    # The kernel kills a compiler that runs out of memory without a message.
    if (not result and status in KILLED) or COMPILER_KILLED.search(text):
        return CompileFailed(
            f"{what}: the compiler was killed, most often for lack of memory (BERT-base at 16x1024 takes up to 15 GB): "
            f"compile with --jobs 1, smaller buckets, or with --cpu-backend on a larger machine. Its output: {log}"
        )
    said = last_line(text) if text else f"the tracing process ended with status {status}"
    return CompileFailed(f"{what}: {said}; the compiler's output: {log}")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
