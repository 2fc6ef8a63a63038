"""One process of the generator: sends its share of the requests, notes their times, and checks results at the end.

During a run it only sends: results are stored and compared afterwards, and the garbage collector is off.
"""

import asyncio
import gc
import os
import resource
import signal
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import uvloop

from corelane.errors import CorelaneError, SetupError
from corelane.plugins.lab.load import TICK_S, Done, ProcessTask, Shot, Tick
from corelane.plugins.lab.results import ResultJudge, add_up
from corelane.plugins.lab.schema import Request, ResultCheck
from corelane.plugins.lab.senders import Reply, Sender, make_sender

#: Descriptors that are left for other uses than requests.
SPARE_DESCRIPTORS = 64

#: The niceness of a process, if it may set one. A process works for a small part of the time, but must run at once: a
#: client on a separate machine would not wait for the service's CPU.
PRIORITY = -10

#: A caller of a closed loop whose request failed waits this long before the next, in seconds. Otherwise it would fail
#: thousands of times a second.
PAUSE_S = 0.1

#: Most connections that a process opens in advance.
MOST_OPENED = 64


@dataclass(slots=True)
class Sent:
    """One request, in the form in which it is stored until the end."""

    shot: Shot
    begun_s: float
    places: list[int]
    reply: Reply = field(default_factory=Reply)


def run_process(link: Connection, task: ProcessTask) -> None:
    """Run a process of the generator: say that it is ready, begin when told, tell how far it is, stop when told."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    with suppress(BrokenPipeError, EOFError, ConnectionResetError):
        try:
            uvloop.run(_Process(link, task).live())
        except CorelaneError as error:
            link.send(SetupError(error.detail))


def descriptors() -> int:
    """Return how many requests this process may have in flight."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, (1 << 16 if soft == resource.RLIM_INFINITY else soft) - SPARE_DESCRIPTORS)


class _Process:
    def __init__(self, link: Connection, task: ProcessTask) -> None:
        self._link, self._task, self._plan = link, task, task.plan
        self._sender: Sender = make_sender(self._plan.sender, task.target, self._plan.manner)
        bound = self._plan.max_in_flight
        self._places = asyncio.Semaphore(descriptors() if bound is None else max(1, task.share(bound)))
        self._sent: list[Sent] = []
        self._open: set[asyncio.Task[bool]] = set()
        self._tick = Tick()
        self._measured_begun = self._measured_open = self._held = 0
        self._all_begun = asyncio.Event()
        self._start_s = 0.0
        self._cpu_s: list[float] = []

    async def live(self) -> None:
        """Connect, wait for the start, send until told to stop, wait for requests in flight, and report."""
        await self._sender.open(self._connections())
        gc.collect()
        gc.freeze()
        gc.disable()
        self._link.send(None)
        loop = asyncio.get_running_loop()
        self._start_s = await loop.run_in_executor(None, self._link.recv)
        stop = asyncio.Event()
        loop.add_reader(self._link.fileno(), stop.set)
        # libuv makes a descriptor that it watches non-blocking; a report is larger than a pipe takes at once.
        os.set_blocking(self._link.fileno(), True)
        running = [asyncio.create_task(each) for each in (self._tell(), *self._offers())]
        for at_s in (self._task.phases.measured_s, self._task.phases.tail_s):
            if at_s < float("inf"):
                loop.call_later(max(0.0, self._start_s + at_s - time.monotonic()), self._note_cpu)
        await stop.wait()
        loop.remove_reader(self._link.fileno())
        self._note_cpu()
        # A process that is late still begins every measured request: none may go uncounted.
        if not self._plan.is_closed and not self._task.is_endless:
            await self._all_begun.wait()
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._open:
            await asyncio.wait(self._open)
        await self._sender.close()
        self._link.send(self._report())

    def _connections(self) -> int:
        if self._plan.is_closed:
            return min(self._task.loops, MOST_OPENED)
        at_once = min(self._plan.max_in_flight or MOST_OPENED, MOST_OPENED)
        return min(at_once, 4 + int(self._plan.load.rate_per_s or 8) // self._task.processes)

    def _note_cpu(self) -> None:
        self._cpu_s.append(time.process_time())

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._tick.is_over = self._all_begun.is_set() and not self._measured_open
            self._link.send(self._tick)

    def _offers(self) -> list[Coroutine[Any, Any, None]]:
        if self._plan.is_closed:
            return [self._repeat(loop) for loop in range(self._task.loops)]
        return [self._offer()]

    async def _offer(self) -> None:
        """Begin each request of this process when it is due, however many are in flight."""
        for shot in self._plan.schedule().shots():
            if shot.phase == "tail":
                self._all_begun.set()
            if shot.number % self._task.processes == self._task.place:
                await _until(self._start_s + shot.at_s)
                self._begin(shot)
        self._all_begun.set()

    async def _repeat(self, loop: int) -> None:
        """Begin a request whenever the previous one has ended."""
        every = self._task.loops * self._task.processes
        number = loop * self._task.processes + self._task.place
        await _until(self._start_s)
        while True:
            at_s = time.monotonic() - self._start_s
            phase = self._task.phases.phase(at_s)
            enough = self._plan.requests
            if phase == "measured" and enough is not None and self._measured_begun >= self._task.share(enough):
                phase = "tail"
            if phase == "tail":
                self._all_begun.set()
            if not await self._begin(Shot(number, at_s, phase)):
                await asyncio.sleep(PAUSE_S)
            number += every

    def _begin(self, shot: Shot) -> asyncio.Future[bool]:
        """Send a request and return at once. The future's result is whether it was answered."""
        places = self._task.workload.pick(shot.number, shot.items or self._plan.items, shot.tokens)
        sent = Sent(shot, time.monotonic() - self._start_s, places)
        self._sent.append(sent)
        self._measured_begun += shot.phase == "measured"
        self._measured_open += shot.phase == "measured"
        task = asyncio.create_task(self._send(sent))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        # A caller that is canceled while it waits does not cancel the request.
        return asyncio.shield(task)

    def _is_last(self) -> bool:
        """Return whether the measured part of a closed loop is over, if a number of requests ends it."""
        enough = self._plan.requests if self._plan.is_closed else None
        return enough is not None and not self._measured_open and self._measured_begun >= self._task.share(enough)

    async def _send(self, sent: Sent) -> bool:
        asked = self._task.workload.asked
        tick = self._tick
        self._held += sent.shot.phase == "measured" and self._places.locked()
        async with self._places:
            tick.sent += 1
            try:
                reply = await self._sender.send(sent.shot.number, [asked[place] for place in sent.places])
            except Exception as error:  # a sender of somebody's own may raise anything
                reply = Reply("error", error="sender_broke", detail=f"{type(error).__name__}: {error}")
        sent.reply = reply
        self._measured_open -= sent.shot.phase == "measured"
        if sent.shot.phase == "measured" and self._is_last():
            self._note_cpu()
        tick.ended += 1
        tick.refused += reply.outcome == "refused"
        tick.failed += reply.outcome in ("error", "unfinished")
        return reply.outcome == "ok"

    def _report(self) -> Done:
        judge = ResultJudge(self._task.workload)
        requests, checks = [], []
        for sent in self._sent:
            check = judge.judge(sent.places, sent.reply)
            requests.append(self._request(sent, check))
            if sent.shot.phase == "measured":
                checks.append(check)
        cpu_s = self._cpu_s[min(1, len(self._cpu_s) - 1)] - self._cpu_s[0]
        return Done(requests, cpu_s, add_up(checks), self._held)

    def _request(self, sent: Sent, check: ResultCheck) -> Request:
        reply = sent.reply
        return Request.model_construct(
            number=sent.shot.number,
            process=self._task.place,
            phase=sent.shot.phase,
            outcome=reply.outcome,
            intended_s=sent.shot.at_s,
            begun_s=sent.begun_s,
            sent_s=self._since(reply.sent_s),
            accepted_s=self._since(reply.accepted_s),
            first_s=self._since(reply.first_s),
            ended_s=self._since(reply.ended_s),
            items=len(sent.places),
            tokens=sum(self._task.workload.tokens[place] for place in sent.places),
            **{name: getattr(reply, name) for name in ("job", "retries", "error", "detail")},
            lost=check.lost,
            twice=check.twice,
            wrong=check.differ_from_idle or 0,
        )

    def _since(self, at_s: float | None) -> float | None:
        return None if at_s is None else at_s - self._start_s


async def _until(at_s: float) -> None:
    """Sleep until a time, and not a moment less: timers of event loops end up to a millisecond early."""
    await asyncio.sleep(max(0.0, at_s - time.monotonic()))
    while (left_s := at_s - time.monotonic()) > 0:
        await asyncio.sleep(left_s)
