"""Run compiled files on cores of this machine, in a process that lives as long as they are verified.

It is a process of its own because a core, once taken, is free again only when the process that took it ends.
"""

import io
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from compile.model.reasons import last_line
from compile.neuron.children import Children, save_inputs
from compile.neuron.explain import TracerEnd, explain
from corelane.engine.backends.neuron.chips import Chip
from corelane.engine.backends.neuron.devices import show_cores
from corelane.engine.backends.protocol import Batch, Logits
from corelane.errors import CompileFailed, RunFailed

#: A pass that takes longer hangs: some files compiled on another machine ran once and never again.
PASS_TIMEOUT_S = 120

#: Loading, or starting and importing, takes tens of seconds at most.
LOAD_TIMEOUT_S = 600

#: Seconds that a process has to close its device; a process that hangs has none.
GOODBYE_S = 10

#: torch_neuron prints this when it runs a model without a device: its output has the right shape and no content.
NOT_CALCULATED = "NOT CALCULATED"


class Session:
    """Loads one file at a time and runs batches through it."""

    def __init__(self, chip: Chip, requests: Connection, replies: Connection, log: Path) -> None:
        self._chip = chip
        self._requests = requests
        self._replies = replies
        self._log = log
        self.last_seconds = 0.0
        self.hangs = False

    def load(self, path: Path) -> None:
        """Load a file in place of the one before; raises CompileFailed or SetupError."""
        self._send({"do": "load", "file": str(path)})
        self._check(self._receive(LOAD_TIMEOUT_S, f"loading {path.name}"), f"{path.name}, when it was loaded")

    def run(self, batch: Batch) -> Logits:
        """Run one forward pass; raises RunFailed if it fails, CompileFailed if it hangs or computes nothing.

        ``last_seconds`` is then the time it took, without the transfer.
        """
        content = io.BytesIO()
        save_inputs(content, batch)
        self._send({"do": "run"}, content.getvalue())
        reply = self._receive(PASS_TIMEOUT_S, f"a pass of {batch.bucket}")
        if "error" in reply:
            raise RunFailed(f"a pass of {batch.bucket} failed: {last_line(reply['text'])}")
        self.last_seconds = float(reply["seconds"])
        with np.load(io.BytesIO(self._replies.recv_bytes())) as arrays:
            logits = Logits(arrays["start"], arrays["end"])
        if NOT_CALCULATED in self._log.read_text(encoding="utf-8", errors="replace"):
            raise CompileFailed(
                f"this machine has no {self._chip.target} device: a pass gives shapes and no logits. Add --cpu-backend "
                "to compile without one, and run `corelane verify` where it will serve"
            )
        return logits

    def greet(self) -> None:
        """Wait until the process has imported its packages."""
        self._check(self._receive(LOAD_TIMEOUT_S, "starting the verifying process"), "the verifying process")

    def _send(self, header: dict[str, str], *contents: bytes) -> None:
        try:
            self._requests.send_bytes(json.dumps(header).encode())
            for content in contents:
                self._requests.send_bytes(content)
        except OSError as error:
            raise CompileFailed(f"the verifying process is gone; its output: {self._log}") from error

    def _receive(self, timeout_s: float, what: str) -> dict[str, Any]:
        try:
            if not self._replies.poll(timeout_s):
                self.hangs = True
                raise CompileFailed(f"{what} takes more than {timeout_s} s: it hangs; its output: {self._log}")
            return dict(json.loads(self._replies.recv_bytes()))
        except (EOFError, OSError) as error:
            raise CompileFailed(f"{what}: the verifying process died; its output: {self._log}") from error

    def _check(self, reply: dict[str, Any], what: str) -> None:
        if "error" in reply:
            raise explain(TracerEnd(0, reply), self._chip, what, self._log)


@contextmanager
def open_session(children: Children, chip: Chip, log: Path, cores: int = 1) -> Iterator[Session]:
    """Start a session for the block, on the first cores of this machine unless the environment names some."""
    asked, ask = os.pipe()
    answer, answered = os.pipe()
    named = "NEURON_RT_VISIBLE_CORES" in children.environment
    variables = {} if named else {"NEURON_RT_VISIBLE_CORES": show_cores(range(cores))}
    with log.open("wb") as stream:
        argv = ["run", chip.package, str(asked), str(answered)]
        try:
            child = children.start(argv, stream, (asked, answered), variables)
        finally:
            os.close(asked)
            os.close(answered)
    requests, replies = Connection(ask, readable=False), Connection(answer, writable=False)
    session = Session(chip, requests, replies, log)
    try:
        session.greet()
        yield session
    finally:
        requests.close()
        with suppress(subprocess.TimeoutExpired):
            child.wait(0 if session.hangs else GOODBYE_S)
        children.end(child)
        replies.close()
