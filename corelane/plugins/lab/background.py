"""Questions that go on until they are told to stop: the background of a batch whose length nobody knows before."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from corelane.errors import SetupError
from corelane.plugins.lab.generator import BEGIN_S, GRACE_S, READY_S
from corelane.plugins.lab.phases import Phases
from corelane.plugins.lab.plan import Plan
from corelane.plugins.lab.process import run_process
from corelane.plugins.lab.schema import AnswerCheck, Request
from corelane.plugins.lab.senders import Target
from corelane.plugins.lab.task import ROW, Done, Task
from corelane.plugins.lab.workload import Questions

#: Longer than any background goes on, in seconds.
LONGEST_S = 7 * 24 * 3600.0


class Background(AbstractContextManager["Background"]):
    """Questions at a steady rate, sent by one process of the generator from ``start`` to ``stop``.

    All of them belong to the measured part, so all answers are checked. Times count from ``start_s``, the monotonic
    clock's at the start.
    """

    def __init__(self, target: Target, questions: Questions, plan: Plan) -> None:
        self._plan = replace(plan, warmup_s=0.0, duration_s=LONGEST_S, requests=None, tail_s=0.0, processes=1)
        phases = Phases(0.0, LONGEST_S, LONGEST_S)
        self._task = Task(target, questions, self._plan, phases, place=0, processes=1, is_endless=True)
        self._link: Connection | None = None
        self._process: Any = None
        self.start_s = 0.0
        self.requests: list[Request] = []
        self.answers: AnswerCheck | None = None
        self.cpu_share = 0.0

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
            self._process = None
        if self._link is not None:
            self._link.close()

    def start(self) -> None:
        """Connect, and begin to ask; raise SetupError if the process does not come up."""
        context = get_context("spawn")
        self._link, theirs = context.Pipe()
        self._process = context.Process(target=run_process, args=(theirs, self._task), daemon=True)
        self._process.start()
        theirs.close()
        failure = self._receive(READY_S)
        if failure is not None:
            raise failure
        self.start_s = time.monotonic() + BEGIN_S
        self._link.send(self.start_s)

    @property
    def at_s(self) -> float:
        """The time since the start."""
        return time.monotonic() - self.start_s

    def watch(self) -> Sequence[float]:
        """Return the latencies of the questions that were answered since the last call."""
        found: list[float] = []
        while self._link is not None and self._link.poll(0):
            told = self._receive(0)
            if isinstance(told, Exception):
                raise told
            found += told.latencies
        return found

    def stop(self) -> None:
        """Ask no more, wait for the answers under way, and take what was measured."""
        if self._link is None:
            return
        seconds = self.at_s
        self._link.send(None)
        told, until_s = None, time.monotonic() + self._plan.timeout_s + GRACE_S
        while not isinstance(told, Done):
            told = self._receive(max(0.0, until_s - time.monotonic()))
            if isinstance(told, Exception):
                raise told
        self.requests = [Request.model_construct(**dict(zip(ROW, row, strict=False))) for row in told.rows]
        self.answers = told.answers
        self.cpu_share = told.cpu_s / max(seconds, 1e-9)

    def _receive(self, seconds: float) -> Any:
        if self._link is None or not self._link.poll(seconds):
            raise SetupError(f"the process that asks questions did not answer within {seconds:.0f} s")
        try:
            return self._link.recv()
        except (EOFError, ConnectionResetError):
            raise SetupError("the process that asks questions ended by itself; what it printed says why") from None
