"""Processes that trace and run for Neuron: started in a session of their own, and never left behind.

Each gets a pipe it never reads from; when that closes, because this process ended or gave up, it ends itself and the
compiler it started.
"""

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from compile.neuron import tracer
from compile.neuron.explain import Outcome, count_oom_kills, explain, explain_missing
from corelane.engine.backends.neuron.chips import Chip
from corelane.errors import CompileFailed, SetupError

TRACER = Path(tracer.__file__)

#: Importing a Neuron package takes seconds, on a busy machine many.
PROBE_TIMEOUT_S = 300

#: As much of a log's end is searched for the reason of a failure, in bytes.
TAIL_BYTES = 100_000

#: No further variables.
NONE: Mapping[str, str] = MappingProxyType({})


class Children:
    """Starts tracing processes in one interpreter, with one environment; ``stop`` ends all of them."""

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        self._python = shutil.which(python) or python
        # The compiler is started by its name, and lies beside the interpreter that has its package.
        path = os.pathsep.join([str(Path(self._python).parent.absolute()), environment.get("PATH", "")])
        self.environment = {**environment, "PATH": path}
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def probe(self, chip: Chip) -> dict[str, str]:
        """Versions of what is installed there; raises SetupError if the Neuron package is not."""
        try:
            done = subprocess.run(  # noqa: S603
                [self._python, str(TRACER), "probe", chip.package],
                env=self.environment,
                capture_output=True,
                timeout=PROBE_TIMEOUT_S,
                check=False,
            )
            found = json.loads(done.stdout.splitlines()[-1])
        except OSError as error:
            raise SetupError(f"--neuron-python {self._python} cannot be run: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise SetupError(f"{self._python} needs more than {PROBE_TIMEOUT_S} s to import {chip.package}") from None
        except (ValueError, IndexError):
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"status {done.returncode}"]
            raise SetupError(f"{self._python} cannot import {chip.package}: {last[0]}") from None
        if "error" in found:
            if found["error"] == "failed":
                raise SetupError(f"{self._python} cannot import {chip.package}: {found['text']}")
            raise explain_missing(chip, found["error"], found["text"])
        return dict(found["versions"])

    def work(
        self, mode: str, spec: Mapping[str, Any], chip: Chip, what: str, log: Path, variables: Mapping[str, str] = NONE
    ) -> Any:
        """Have ``trace`` or ``analyze`` done; raises CompileFailed or SetupError. Any thread may call this."""
        request, result = Path(spec["workdir"]) / "request.json", Path(spec["result"])
        request.write_text(json.dumps(dict(spec)), encoding="utf-8")
        before = count_oom_kills()
        with log.open("wb") as stream:
            child = self.start([mode, str(request)], stream, variables=variables)
            try:
                status = child.wait()
            finally:
                self.end(child)
        outcome = Outcome(status, _read(result), count_oom_kills() > before, _read_tail(log))
        if outcome.result is None or "error" in outcome.result:
            raise explain(outcome, chip, what, log)
        return outcome.result

    def start(
        self, argv: Sequence[str], log: Any, fds: Sequence[int] = (), variables: Mapping[str, str] = NONE
    ) -> subprocess.Popen[bytes]:
        """Start the script; its output goes to ``log``, and it inherits ``fds``."""
        with self._lock:
            if self._stopped:
                raise CompileFailed("interrupted")
            child = subprocess.Popen(  # noqa: S603
                [self._python, str(TRACER), *argv],
                env=self.environment | dict(variables),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=tuple(fds),
                start_new_session=True,
            )
            self._running.add(child)
        return child

    def end(self, child: subprocess.Popen[bytes]) -> None:
        """See to it that a process, and what it started, is gone."""
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdin is not None:
            child.stdin.close()
        with self._lock:
            self._running.discard(child)

    def stop(self) -> None:
        """End every process; none can be started afterwards."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for child in running:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def _read_tail(path: Path) -> str:
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return stream.read().decode(errors="replace")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
