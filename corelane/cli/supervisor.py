"""Run the parts of one machine: start them in order, watch them, relaunch them when they die, stop them in order.

A part is *up* once it does its work, not merely once its process runs. A part that was up and is then killed is
relaunched at once, however often. A part that does not come up, or fails right after, is relaunched after growing
pauses. If the service needs it, it is given up after a few tries.

Each part is its own process group, so Ctrl-C reaches only the supervisor. A part dies with the supervisor, and its
child processes die with the part. ``parts.json`` holds the process ids and the addresses of the service.
"""

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import orjson

from corelane.engine.cores import die_with_parent
from corelane.errors import SetupError

if TYPE_CHECKING:
    from corelane.cli.serve_output import Level, ServeOutput

#: Pauses before a part is relaunched, in seconds, after one death, two in a row, and so on; then always the last.
RELAUNCH_PAUSES_S = (0.2, 1, 2, 5, 10, 30)

#: A part that lived this long was healthy, in seconds: a broken one dies sooner.
STABLE_S = 15

#: A part without a probe counts as up after this time; and the time between two probes of a part. In seconds.
PRESUMED_UP_S, PROBE_S = 5, 0.25

#: A part that is killed before it is up is given up after this many kills in a row. The cause is outside, such as a
#: lack of memory, and may be temporary.
MOST_KILLS = 30

#: A part that takes longer to come up has an issue, in seconds. A core that is loading its model reports that itself.
SLOW_S = 60

#: More launches than this within this time, in seconds, mean that a part does not stay up, whatever each life lasted.
MOST_LAUNCHES, LAUNCHES_S = 5, 600

#: Exit statuses whose cause is outside the part: it was asked to end, or killed.
OUTSIDE_ENDS = (0, -signal.SIGTERM, -signal.SIGKILL)

#: How long a part's last lines are read after its end, in seconds; longest line that is shown in full, in bytes.
LAST_WORDS_S, LINE_LIMIT = 1, 1 << 20


@dataclass(slots=True)
class PartHistory:
    """The launches and deaths of a part."""

    launches: int = 0
    launched_at: datetime = datetime.min
    #: Since when the part has had everything that it needs.
    began_at: datetime = datetime.min
    was_ever_up: bool = False
    is_up: bool = False
    #: Exit statuses of the most recent lives, as long as they ended badly.
    deaths: list[int] = field(default_factory=list)
    #: The last launches, the exit status of the last life that ended, and why launches failed since then.
    recent: deque[datetime] = field(default_factory=lambda: deque(maxlen=MOST_LAUNCHES + 1))
    last_status: int | None = None
    failures: list[str] = field(default_factory=list)

    def launched(self) -> None:
        """Record a launch."""
        self.launches += 1
        self.launched_at = self.began_at = datetime.now(UTC)
        self.recent.append(self.launched_at)
        self.is_up, self.failures = False, []

    def came_up(self) -> None:
        """Record that the part does its work."""
        self.is_up = self.was_ever_up = True

    def died(self, status: int, lived_s: float) -> None:
        """Record that the part ended without having been asked to."""
        is_bad = not self.is_up or (status not in OUTSIDE_ENDS and lived_s < STABLE_S)
        self.deaths = [*self.deaths, status] if is_bad else []
        self.last_status = status
        self.is_up = False

    def issue(self, now: datetime) -> str | None:
        """Return what is wrong with the part, or None. The issues are: it does not stay up, or does not come up."""
        if self.failures:
            return f"it cannot be launched: {self.failures[-1]}"
        ended = "" if self.last_status is None else f"; the last time it {describe_status(self.last_status)}"
        if self.deaths and (not self.is_up or (now - self.launched_at).total_seconds() < STABLE_S):
            return f"it does not come up, and was launched {self.launches} times{ended}"
        if sum((now - at).total_seconds() < LAUNCHES_S for at in self.recent) > MOST_LAUNCHES:
            return f"it does not stay up, and was launched {self.launches} times{ended}"
        coming_s = (now - self.began_at).total_seconds()
        return None if self.is_up or coming_s <= SLOW_S else f"it is not up {coming_s:.0f} s after its launch"

    @property
    def pause_s(self) -> float:
        """Time until the next launch, in seconds."""
        return RELAUNCH_PAUSES_S[min(max(len(self.deaths), len(self.failures), 1), len(RELAUNCH_PAUSES_S)) - 1]

    def is_hopeless(self, first_tries: int) -> bool:
        """Return whether another launch would most likely end in the same way."""
        tries = len(RELAUNCH_PAUSES_S) if self.was_ever_up else first_tries
        return sum(status != -signal.SIGKILL for status in self.deaths) >= tries or len(self.deaths) >= MOST_KILLS


@dataclass(slots=True)
class FleetPart:
    """One process to run: its name, how it starts, how long it may take to stop.

    The service ends when a ``needed`` part is given up; any other is always relaunched. ``is_up`` is called with the
    process id until it returns True. ``first_tries`` is how often a part that was never up may end by itself before it
    is given up. ``argv`` may be a function that is called at each launch; the process inherits ``fds``, and is pinned
    to ``cpus`` if any are given. ``comment`` returns an addition to a line that the part writes, or None. A part that
    is not ``shown`` writes to the supervisor's own output.
    """

    name: str
    argv: Sequence[str] | Callable[[], Sequence[str]]
    env: Mapping[str, str]
    needed: bool = True
    grace_s: float = 10
    first_tries: int = 6
    is_up: Callable[[int], Awaitable[bool]] | None = None
    comment: Callable[[str], str | None] | None = None
    fds: Sequence[int] = ()
    cpus: frozenset[int] = frozenset()
    shown: bool = True
    #: Whether the part is being stopped for good while others continue.
    is_leaving: bool = False
    process: asyncio.subprocess.Process | None = None
    history: PartHistory = field(default_factory=PartHistory)


class Supervisor:
    """Runs parts until it is asked to stop or a needed part is given up."""

    def __init__(self, output: "ServeOutput", parts_file: Path | None = None) -> None:
        self.output = output
        self.workers_redis_url: str | None = None
        self._parts_file = parts_file
        self._about: dict[str, object] = {"is_ready": False}
        self._parts: list[FleetPart] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._over = asyncio.Event()
        self._stopping = False
        self.failure: str | None = None

    def stop_on_signals(self) -> None:
        """Make SIGINT and SIGTERM request a stop."""
        for sign in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(sign, self.request_stop)

    def say(self, text: str, level: "Level" = "info") -> None:
        """Print a sentence of the supervisor itself."""
        self.output.say(text, level)

    def note(self, **about: object) -> None:
        """Write facts about the service into ``parts.json``."""
        self._about |= about
        self._note_parts()

    def request_stop(self) -> None:
        """Make ``wait`` return; safe in a signal handler."""
        self._over.set()

    def fail(self, reason: str) -> None:
        """End everything with a failure."""
        self.failure = self.failure or reason
        self._over.set()

    @property
    def has_begun(self) -> bool:
        """Whether there is a part to stop."""
        return bool(self._parts)

    @property
    def is_over(self) -> bool:
        """Whether a stop was requested or a needed part was given up."""
        return self._over.is_set()

    def health_issues(self) -> dict[str, str]:
        """Return the parts that do not come up or do not stay up, and what is wrong with each."""
        now = datetime.now(UTC)
        found = {part.name: part.history.issue(now) for part in self._parts if part.process is not None}
        return {name: text for name, text in found.items() if text is not None}

    async def start(self, part: FleetPart) -> None:
        """Launch a part, and watch it from then on."""
        self._parts.append(part)
        output = await self._launch(part)
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(asyncio.create_task(self._watch(part, output), name=part.name))

    def all_up(self, names: Sequence[str] = ()) -> bool:
        """Return whether these parts do their work; all parts if none is named."""
        return all(part.history.is_up for part in self._parts if not names or part.name in names)

    def allow_time(self, prefix: str) -> None:
        """Restart the time that parts have to come up, because they had to wait. ``prefix`` begins their names."""
        for part in self._parts:
            if part.name.startswith(prefix):
                part.history.began_at = datetime.now(UTC)

    def names(self) -> set[str]:
        """Return the names of the parts, including those that are being stopped."""
        return {part.name for part in self._parts}

    async def end(self, name: str) -> None:
        """Stop one part for good; the others continue."""
        for part in [part for part in self._parts if part.name == name]:
            part.is_leaving = True
            await self._stop_part(part)
            self._parts.remove(part)
        self._note_parts()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until a stop is requested or a part is given up; return False if neither happens in ``timeout_s``."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), timeout_s)
        return self._over.is_set()

    async def stop(self, order: Sequence[Sequence[str]] = ()) -> None:
        """Stop the parts group by group, by the prefixes of their names; parts in no group stop first."""
        self._stopping = True
        self._over.set()
        named = tuple(prefix for group in order for prefix in group)
        loose = [part for part in self._parts if not part.name.startswith(named)]
        for group in (loose, *([p for p in self._parts if p.name.startswith(tuple(group))] for group in order)):
            await asyncio.gather(*map(self._stop_part, group))
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._parts_file is not None:
            self._parts_file.unlink(missing_ok=True)

    async def _stop_part(self, part: FleetPart) -> None:
        process = part.process
        if process is None or process.returncode is not None:
            return
        for sign, grace_s in ((signal.SIGTERM, part.grace_s), (signal.SIGQUIT, 3), (signal.SIGKILL, 3)):
            with suppress(ProcessLookupError):
                process.send_signal(sign)
                # A part that was stopped with SIGSTOP could not obey.
                process.send_signal(signal.SIGCONT)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), grace_s)
                return
            self.say(f"{part.name} did not stop within {grace_s:g} s of {sign.name}", "warning")

    async def _launch(self, part: FleetPart) -> BinaryIO:
        """Start a part's process; return the end of a pipe from which its lines are read.

        The pipe is not asyncio's: with such a pipe a part counts as running while a child of it holds the other end.
        """
        argv = part.argv() if callable(part.argv) else part.argv
        reading, writing = os.pipe()
        try:
            part.process = await asyncio.create_subprocess_exec(
                *argv,
                env=dict(part.env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing if part.shown else None,
                stderr=writing if part.shown else None,
                pass_fds=part.fds,
                start_new_session=True,
                preexec_fn=partial(prepare, part.cpus),
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        part.history.launched()
        self._note_parts()
        return os.fdopen(reading, "rb", 0)

    async def _watch(self, part: FleetPart, output: BinaryIO | None) -> None:
        """Relaunch the part each time it dies, until it is given up or everything stops."""
        history = part.history
        while True:
            if output is not None:
                status, lived_s = await self._live(part, output)
                if self._is_ending(part):
                    return
                history.died(status, lived_s)
                how = describe_status(status)
                if part.needed and history.is_hopeless(part.first_tries):
                    times = f", {len(history.deaths)} times in a row" if len(history.deaths) > 1 else ""
                    self.fail(f"{part.name} keeps failing: it {how}{times}; the reason is shown above")
                    return
                self.say(f"{part.name} {how}; it comes back in {history.pause_s:g} s", "error")
            if await self.wait(history.pause_s) or self._is_ending(part):
                return
            try:
                output = await self._launch(part)
                self.say(f"{part.name} is launched again")
            except (OSError, SetupError) as error:
                output = None
                history.failures.append(str(error))
                self.say(f"{part.name} cannot be launched: {error}; next try in {history.pause_s:g} s", "error")
            if self._is_ending(part):
                await self._stop_part(part)

    def _is_ending(self, part: FleetPart) -> bool:
        """Return whether the part must not be relaunched."""
        return self._stopping or part.is_leaving

    async def _live(self, part: FleetPart, output: BinaryIO) -> tuple[int, float]:
        """Wait for the end of a part's process; return its exit status and how long it lived, in seconds."""
        process = part.process
        if process is None:
            return -1, 0
        began = time.monotonic()
        lines = asyncio.StreamReader(limit=LINE_LIMIT)
        loop = asyncio.get_running_loop()
        pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), output)
        showing = asyncio.create_task(self._show(part, lines))
        probing = asyncio.create_task(self._probe(part, process.pid))
        try:
            status = await process.wait()
            lived_s = time.monotonic() - began
            if not self._stopping:
                # A killed worker's child may be frozen, and would keep its core.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            await asyncio.wait((showing,), timeout=LAST_WORDS_S)
            return status, lived_s
        finally:
            probing.cancel()
            showing.cancel()
            pipe.close()

    async def _probe(self, part: FleetPart, pid: int) -> None:
        """Probe the part until it is up."""
        if part.is_up is None:
            await asyncio.sleep(PRESUMED_UP_S)
        else:
            while not await part.is_up(pid):
                await asyncio.sleep(PROBE_S)
        part.history.came_up()
        self._note_parts()

    async def _show(self, part: FleetPart, output: asyncio.StreamReader) -> None:
        """Show the lines of a part until the pipe is closed."""
        while True:
            try:
                line = await output.readline()
            except ValueError:
                continue
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            if text:
                self.output.show(part.name, text)
            if part.comment is not None and (comment := part.comment(text)):
                self.say(comment, "error")

    def _note_parts(self) -> None:
        """Write the process ids of the parts to disk. A full disk does not end the service."""
        if self._parts_file is None:
            return
        known = {
            part.name: {
                "pid": part.process.pid,
                "launched_at": part.history.launched_at.isoformat(timespec="milliseconds"),
                "launches": part.history.launches,
                "is_up": part.history.is_up,
            }
            for part in self._parts
            if part.process is not None
        }
        found = {"pid": os.getpid(), **self._about, "parts": known}
        beside = self._parts_file.with_suffix(".new")
        with suppress(OSError):
            beside.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
            beside.replace(self._parts_file)


def describe_status(status: int) -> str:
    """Return an exit status in words."""
    if status >= 0:
        return f"ended with status {status}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"


def prepare(cpus: frozenset[int]) -> None:
    """Pin this process, if CPUs are given, and tie it to its parent; for ``preexec_fn``."""
    if cpus:
        os.sched_setaffinity(0, cpus)
    die_with_parent()
