"""The load generator: processes that send requests when they are due, and measure.

The requests of an open loop never wait for results, unless ``max_in_flight`` bounds them. Each process takes every n-th
request, by arrivals that all of them draw from the same seed. They connect first, and begin together at one moment of
the monotonic clock. ``on_phase`` and ``on_tick`` are called in this process, which sends nothing.
"""

import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal

from corelane.errors import InvalidInput, SetupError
from corelane.plugins.lab.figures import Measurement
from corelane.plugins.lab.load import TICK_S, Done, LoadProgress, Phases, ProcessTask, RunPlan, Tick
from corelane.plugins.lab.process import run_process
from corelane.plugins.lab.results import add_up
from corelane.plugins.lab.schema import Generator, Request, ResultCheck
from corelane.plugins.lab.senders import Target, make_sender
from corelane.plugins.lab.stats import spread
from corelane.plugins.lab.workload import Workload

#: Requests a second, and loops, that one process is given: about a tenth of a CPU.
PROCESS_RATE, PROCESS_LOOPS = 200.0, 64

#: Time from when the last process is ready until the first request is due, in seconds.
BEGIN_S = 0.1

#: Longest wait for a process to start, in seconds: on a busy machine it is slow.
READY_S = 120.0

#: A process is given up if it has not reported this long after the time limit of its last request, in seconds.
GRACE_S = 60.0

#: Longer than any background load lasts, in seconds.
LONGEST_S = 7 * 24 * 3600.0

OnPhase = Callable[[Literal["measured", "tail"]], object]
OnTick = Callable[[LoadProgress], object]


def run_load(
    target: Target,
    workload: Workload,
    plan: RunPlan,
    on_phase: OnPhase = lambda _phase: None,
    on_tick: OnTick = lambda _tick: None,
) -> Measurement:
    """Offer a load and return what became of it; raise CorelaneError if it cannot begin."""
    make_sender(plan.sender, target, plan.manner)  # what cannot be is told here, before processes start
    phases = phases_of(plan)
    count = choose_processes(plan)
    tasks = [ProcessTask(target, workload, plan, phases, place, count) for place in range(count)]
    with _Fleet(tasks) as fleet:
        run = _Run(plan, phases, fleet, on_phase, on_tick)
        run.drive()
        return run.measured()


def phases_of(plan: RunPlan) -> Phases:
    """Return the times of a run's parts; infinity if only a number of requests ends the measured part."""
    if not plan.is_closed:
        schedule = plan.schedule()
        if plan.way == "item" and schedule.most_items > 1:
            raise InvalidInput("the trace has requests of several items: send them as jobs, with --way job")
        return schedule.phases
    if not plan.load.concurrency:
        raise InvalidInput("a closed loop needs a concurrency of 1 or more")
    if plan.duration_s is None and plan.requests is None:
        raise InvalidInput("a closed loop needs a --duration or a number of --requests")
    tail_s = plan.warmup_s + (math.inf if plan.duration_s is None else plan.duration_s)
    return Phases(plan.warmup_s, tail_s, tail_s + plan.tail_s)


def choose_processes(plan: RunPlan) -> int:
    """Return the number of processes: the plan's, or as many as the load needs, with one CPU left for others."""
    if plan.is_closed:
        most = plan.load.concurrency or 1
        needed = math.ceil(most / PROCESS_LOOPS)
    else:
        most = plan.max_in_flight or 1 << 16
        needed = math.ceil(plan.schedule().peak_per_s / PROCESS_RATE)
    chosen = plan.processes or min(needed, len(os.sched_getaffinity(0)) - 1)
    return max(1, min(chosen, most))


class _Fleet:
    """The processes of one run, and their links: a context manager that waits until all processes are ready."""

    def __init__(self, tasks: list[ProcessTask]) -> None:
        self._tasks = tasks
        self._processes: list[BaseProcess] = []
        self.links: list[Connection] = []

    def __enter__(self) -> "_Fleet":
        spawning = get_context("spawn")
        try:
            for task in self._tasks:
                ours, theirs = spawning.Pipe()
                process = spawning.Process(target=run_process, args=(theirs, task), daemon=True)
                process.start()
                theirs.close()
                self.links.append(ours)
                self._processes.append(process)
            for link in self.links:
                _receive(link, READY_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process, link in zip(self._processes, self.links, strict=True):
            process.kill()
            process.join()
            process.close()
            link.close()
        self._processes.clear()
        self.links.clear()

    def begin(self) -> float:
        """Tell all processes when to begin, and return that time of the monotonic clock."""
        start_s = time.monotonic() + BEGIN_S
        for link in self.links:
            link.send(start_s)
        return start_s


def _receive(link: Connection, seconds: float) -> Any:
    """Return what a process sends within some seconds; raise its error, or SetupError if it sends nothing."""
    if not link.poll(seconds):
        raise SetupError(f"a process of the generator did not report within {seconds:.0f} s; is it stopped?")
    try:
        told = link.recv()
    except (EOFError, ConnectionResetError):
        raise SetupError("a process of the generator ended by itself; what it printed says why") from None
    if isinstance(told, Exception):
        raise told
    return told


class _Run:
    """One run, from the common start of its processes until all have reported."""

    def __init__(self, plan: RunPlan, phases: Phases, fleet: _Fleet, on_phase: OnPhase, on_tick: OnTick) -> None:
        self._plan, self._phases, self._links = plan, phases, fleet.links
        self._on_phase, self._on_tick = on_phase, on_tick
        self._ticks: dict[int, Tick] = {}
        self._done: dict[int, Done] = {}
        self._told_s = -math.inf
        self._stopped_s: float | None = None
        begins_at = datetime.now(UTC) + timedelta(seconds=BEGIN_S)
        self._began_at = begins_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._start_s = fleet.begin()

    def drive(self) -> None:
        """Listen until all processes have reported; call back when parts begin, and stop the load at its end."""
        in_measured = in_tail = False
        while len(self._done) < len(self._links):
            self._listen()
            at_s = time.monotonic() - self._start_s
            if not in_measured and at_s >= self._phases.measured_s:
                in_measured = True
                self._on_phase("measured")
            if in_measured and not in_tail and (at_s >= self._phases.tail_s or self._is_over):
                in_tail = True
                self._on_phase("tail")
            if in_tail and self._stopped_s is None and (self._is_over or at_s >= self._phases.end_s):
                self._stopped_s = at_s
                for link in self._links:
                    link.send(None)
            self._tell(at_s)
            if self._stopped_s is not None and at_s > self._stopped_s + self._plan.timeout_s + GRACE_S:
                raise SetupError("a process of the generator did not report; is it stopped?")

    @property
    def _is_over(self) -> bool:
        """Whether all measured requests have ended."""
        return len(self._ticks) == len(self._links) and all(tick.is_over for tick in self._ticks.values())

    def _listen(self) -> None:
        at_s = time.monotonic() - self._start_s
        bounds = [bound - at_s for bound in (self._phases.measured_s, self._phases.tail_s) if bound > at_s]
        open_links = [link for place, link in enumerate(self._links) if place not in self._done]
        for link in wait(open_links, min([TICK_S, *bounds])):
            place = self._links.index(link)  # type: ignore[arg-type]
            told = _receive(self._links[place], 0)
            if isinstance(told, Done):
                self._done[place] = told
            else:
                self._ticks[place] = told

    def _tell(self, at_s: float) -> None:
        if at_s - self._told_s < TICK_S or not self._ticks:
            return
        self._told_s = at_s
        ticks = list(self._ticks.values())
        total = Tick(*(sum(getattr(tick, name) for tick in ticks) for name in ("sent", "ended", "refused", "failed")))
        self._on_tick(LoadProgress(self._phases.phase(at_s), at_s, total))

    def measured(self) -> Measurement:
        """Return the measurements."""
        found = (request for done in self._done.values() for request in done.requests)
        requests = sorted(found, key=lambda each: (each.intended_s, each.number))
        window_s = self._window_s(requests)
        results = add_up(done.results for done in self._done.values())
        return Measurement(requests, self._generator(requests, window_s), window_s, self._began_at, results)

    def _window_s(self, requests: list[Request]) -> tuple[float, float]:
        start_s, end_s = self._phases.measured_s, self._phases.tail_s
        if self._plan.is_closed and self._plan.requests is not None:
            ends = [each.ended_s for each in requests if each.phase == "measured" and each.ended_s is not None]
            end_s = min(end_s, max(ends, default=self._stopped_s or start_s))
        return start_s, end_s

    def _generator(self, requests: list[Request], window_s: tuple[float, float]) -> Generator:
        start_s, end_s = window_s
        length_s = max(end_s - start_s, 1e-9)
        measured = [each for each in requests if each.phase == "measured"]
        # A client with its own limit holds requests back on purpose, and a service may refuse connections: then the
        # generator was late only if it noticed late.
        holds = self._plan.max_in_flight is not None
        noticed = [each.begun_s if holds or each.sent_s is None else each.sent_s for each in measured]
        late = [at_s - each.intended_s for each, at_s in zip(measured, noticed, strict=True)]
        achieved = sum(at_s < end_s for at_s in noticed)
        cpu_s = [done.cpu_s for done in self._done.values()]
        return Generator(
            processes=len(self._links),
            requested_per_s=None if self._plan.is_closed else self._plan.schedule().due() / length_s,
            achieved_per_s=achieved / length_s,
            lateness=None if self._plan.is_closed else spread(late),
            cpu_s=sum(cpu_s),
            cpu_share=max(cpu_s) / length_s,
            held=sum(done.held for done in self._done.values()),
        )


class Background:
    """Requests at a steady rate from entry to ``stop``, by one process; every result of them is checked."""

    def __init__(self, target: Target, workload: Workload, plan: RunPlan) -> None:
        self._plan = replace(plan, warmup_s=0.0, duration_s=LONGEST_S, requests=None, tail_s=0.0, processes=1)
        phases = Phases(0.0, LONGEST_S, LONGEST_S)
        self._fleet = _Fleet([ProcessTask(target, workload, self._plan, phases, place=0, processes=1, is_endless=True)])
        self.start_s = 0.0

    def __enter__(self) -> "Background":
        """Connect, and begin to ask; raise SetupError if the process does not come up."""
        self.start_s = self._fleet.__enter__().begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._fleet.__exit__()

    @property
    def at_s(self) -> float:
        """The time since the start."""
        return time.monotonic() - self.start_s

    def watch(self) -> None:
        """Read the process's messages so far; raise its error if it failed."""
        for link in self._fleet.links:
            while link.poll(0):
                _receive(link, 0)

    def stop(self) -> tuple[list[Request], ResultCheck]:
        """Stop asking, wait for the results in flight, and return the measurements."""
        [link] = self._fleet.links
        until_s = time.monotonic() + self._plan.timeout_s + GRACE_S
        link.send(None)
        while not isinstance(told := _receive(link, max(0.0, until_s - time.monotonic())), Done):
            pass
        return told.requests, told.results
