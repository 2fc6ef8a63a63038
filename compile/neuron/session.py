"""A process that runs compiled files on cores of this machine, for as long as they are verified.

A process of its own because a core, once taken, is given back only by the end of the process that took it.
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

from compile.neuron.children import Children
from compile.neuron.explain import Outcome, explain
from corelane.engine.backends.neuron.chips import Chip
from corelane.engine.backends.neuron.devices import show_cores
from corelane.engine.backends.protocol import Batch, Logits
from corelane.errors import CompileFailed, RunFailed

#: A pass that takes longer hangs: files compiled elsewhere have been seen to run once and never again.
PASS_TIMEOUT_S = 120

#: Loading takes tens of seconds at most, starting and importing too.
LOAD_TIMEOUT_S = 600

#: A process gets this long to close its device in peace, in seconds; one that hangs gets none.
GOODBYE_S = 10

#: What torch_neuron says when it runs a model without a device: the output has the right shape and no content.
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
        """One forward pass; raises RunFailed if it fails, CompileFailed if it hangs or computes nothing.

        The time it took, without the way there and back, is then in ``last_seconds``.
        """
        content = io.BytesIO()
        np.savez(
            content,
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            token_type_ids=batch.token_type_ids,
        )
        self._send({"do": "run"}, content.getvalue())
        reply = self._receive(PASS_TIMEOUT_S, f"a pass of {batch.bucket}")
        if "error" in reply:
            raise RunFailed(f"a pass of {batch.bucket} failed: {(reply['text'].strip().splitlines() or ['?'])[-1]}")
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
        """Wait until the process has imported what it needs."""
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
            raise explain(Outcome(0, reply), self._chip, what, self._log)


@contextmanager
def open_session(children: Children, chip: Chip, log: Path, cores: int = 1) -> Iterator[Session]:
    """A session on so many cores, the first of this machine unless the environment names some; the process is gone
    after the block.
    """
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
