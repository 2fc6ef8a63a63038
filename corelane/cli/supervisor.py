"""Run the parts of one machine: start them in order, watch them, relaunch them when they die, stop them in order.

A part is *up* once it does its work, not merely once its process runs. A part that is killed after it was up is
relaunched at once. A part that does not come up, or fails right after, is relaunched after growing pauses. If the
service needs such a part, the service ends after a few tries.

Each part is its own process group, so Ctrl-C reaches only the supervisor. A part dies with the supervisor, and its
child processes die with the part. ``parts.json`` holds the process ids and the addresses of the service.
"""

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

import orjson

from corelane.engine.cores import die_with_parent

Level = Literal["info", "warning", "error"]

#: Pauses before a part is relaunched, in seconds, after one bad end, two in a row, and so on; then always the last.
RELAUNCH_PAUSES_S = (0.2, 1, 2, 5, 10, 30)

#: A part that lived this long was healthy, in seconds: a broken one dies sooner.
STABLE_S = 15

#: A part without a probe counts as up after this time; and the time between two probes of a part. In seconds.
PRESUMED_UP_S, PROBE_S = 5, 0.25

#: A part that takes longer to come up has an issue, in seconds. A core that is loading its model reports that itself.
SLOW_S = 60

#: More launches than this within this time, in seconds, mean that a part does not stay up, whatever each life lasted.
MOST_LAUNCHES, LAUNCHES_S = 5, 600

#: Signals whose cause is outside the part: it was asked to end, or killed, perhaps for lack of memory.
OUTSIDE_SIGNALS = (-signal.SIGTERM, -signal.SIGKILL)

#: How long a part's last lines are read after its end, in seconds; longest line that is shown in full, in bytes.
LAST_WORDS_S, LINE_LIMIT = 1, 1 << 20


class Say(Protocol):
    """Prints a sentence of the supervisor itself."""

    def __call__(self, text: str, level: Level = "info") -> None:
        """Print it."""


@dataclass(slots=True)
class PartHistory:
    """The launches and ends of a part."""

    launches: int = 0
    launched_at: datetime = datetime.min
    was_ever_up: bool = False
    is_up: bool = False
    #: Bad ends in a row, and how many of them came from the part itself.
    bad_ends: int = 0
    faults: int = 0
    #: How it ended the last time, in words.
    last_end: str = ""
    recent: deque[datetime] = field(default_factory=lambda: deque(maxlen=MOST_LAUNCHES + 1))

    def launched(self) -> None:
        """Record a launch."""
        self.launches += 1
        self.launched_at = datetime.now(UTC)
        self.recent.append(self.launched_at)
        self.is_up = False

    def came_up(self) -> None:
        """Record that the part does its work."""
        self.is_up = self.was_ever_up = True

    def ended(self, how: str, lived_s: float, *, by_itself: bool) -> None:
        """Record that the part ended without having been asked to, or could not be launched."""
        is_bad = not self.is_up or (by_itself and lived_s < STABLE_S)
        self.bad_ends = self.bad_ends + 1 if is_bad else 0
        self.faults = self.faults + by_itself if is_bad else 0
        self.last_end = how
        self.is_up = False

    def issue(self, now: datetime) -> str | None:
        """Return what is wrong with the part, or None: it does not come up, or does not stay up."""
        age_s = (now - self.launched_at).total_seconds()
        said = f"and was launched {self.launches} times; the last time it {self.last_end}"
        if self.bad_ends and (not self.is_up or age_s < STABLE_S):
            return f"it does not come up, {said}"
        if sum((now - at).total_seconds() < LAUNCHES_S for at in self.recent) > MOST_LAUNCHES:
            return f"it does not stay up, {said}"
        return None if self.is_up or age_s <= SLOW_S else f"it is not up {age_s:.0f} s after its launch"

    @property
    def pause_s(self) -> float:
        """Time until the next launch, in seconds."""
        return RELAUNCH_PAUSES_S[min(max(self.bad_ends, 1), len(RELAUNCH_PAUSES_S)) - 1]

    def is_hopeless(self, first_tries: int) -> bool:
        """Return whether another launch would most likely end in the same way. Kills from outside do not count."""
        return self.faults >= (len(RELAUNCH_PAUSES_S) if self.was_ever_up else first_tries)


@dataclass(slots=True)
class FleetPart:
    """One process to run: its name, how it starts, how long it may take to stop.

    The service ends when a ``needed`` part is given up; any other is always relaunched. ``is_up`` is called with the
    process id until it returns True. ``first_tries`` is how often a part that was never up may end by itself before it
    is given up, and ``advice`` is added to the sentence that says so. The process inherits ``fds``, and is pinned to
    ``cpus`` if any are given.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    needed: bool = True
    grace_s: float = 10
    first_tries: int = 6
    is_up: Callable[[int], Awaitable[bool]] | None = None
    advice: str = ""
    fds: Sequence[int] = ()
    cpus: frozenset[int] = frozenset()
    process: asyncio.subprocess.Process | None = None
    history: PartHistory = field(default_factory=PartHistory)


class Supervisor:
    """Runs parts until it is asked to stop or a needed part is given up.

    ``show`` prints a line of a part, named first. Without it parts write to the supervisor's own output.
    """

    def __init__(
        self, say: Say, show: Callable[[str, str], None] | None = None, parts_file: Path | None = None
    ) -> None:
        self.say = say
        self._show_line = show
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
        found = {part.name: part.history.issue(now) for part in self._parts}
        return {name: text for name, text in found.items() if text is not None}

    async def start(self, part: FleetPart) -> None:
        """Launch a part, and watch it from then on."""
        output = await self._launch(part)
        self._parts.append(part)
        self._note_parts()
        self._tasks.append(asyncio.create_task(self._watch(part, output), name=part.name))

    def all_up(self, names: Sequence[str] = ()) -> bool:
        """Return whether these parts do their work; all parts if none is named."""
        return all(part.history.is_up for part in self._parts if not names or part.name in names)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until a stop is requested or a part is given up; return False if neither happens in ``timeout_s``."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), timeout_s)
        return self._over.is_set()

    async def run(
        self, argv: Sequence[str], env: Mapping[str, str], stdout: int | None = None
    ) -> tuple[int | None, bytes]:
        """Run a command, and end it if a stop is requested; return its status, and its output if that is a pipe."""
        process = await asyncio.create_subprocess_exec(*argv, env=dict(env), stdout=stdout)
        stop, done = asyncio.create_task(self.wait()), asyncio.create_task(process.communicate())
        await asyncio.wait((stop, done), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if process.returncode is None and not done.done():
            process.terminate()
        said, _ = await done
        return process.returncode, said or b""

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

    async def _launch(self, part: FleetPart) -> BinaryIO | None:
        """Start a part's process; return the end of a pipe from which its lines are read, if they are shown.

        The pipe is not asyncio's: with such a pipe a part counts as running while a child of it holds the other end.
        """
        reading, writing = os.pipe() if self._show_line else (None, None)
        try:
            part.process = await asyncio.create_subprocess_exec(
                *part.argv,
                env=dict(part.env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                pass_fds=part.fds,
                start_new_session=True,
                preexec_fn=partial(prepare, part.cpus),
            )
        except BaseException:
            if reading is not None:
                os.close(reading)
            raise
        finally:
            if writing is not None:
                os.close(writing)
        part.history.launched()
        self._note_parts()
        return None if reading is None else os.fdopen(reading, "rb", 0)

    async def _watch(self, part: FleetPart, output: BinaryIO | None) -> None:
        """Relaunch the part each time it ends, until it is given up or everything stops."""
        history = part.history
        while True:
            status, lived_s = await self._live(part, output)
            if self._stopping:
                return
            how = describe_status(status)
            history.ended(how, lived_s, by_itself=status not in OUTSIDE_SIGNALS)
            if part.needed and history.is_hopeless(part.first_tries):
                times = f", {history.bad_ends} times in a row" if history.bad_ends > 1 else ""
                self.fail(f"{part.name} keeps failing: it {how}{times}; the reason is shown above{part.advice}")
                return
            self.say(f"{part.name} {how}; it is launched again in {history.pause_s:g} s", "error")
            while True:
                if await self.wait(history.pause_s):
                    return
                try:
                    output = await self._launch(part)
                    break
                except OSError as error:
                    history.ended(f"could not be launched: {error}", 0, by_itself=False)
                    again = f"the next try is in {history.pause_s:g} s"
                    self.say(f"{part.name} could not be launched: {error}; {again}", "error")
            if self.is_over:  # perhaps stopped before it was launched
                await self._stop_part(part)

    async def _live(self, part: FleetPart, output: BinaryIO | None) -> tuple[int, float]:
        """Wait for the end of a part's process; return its exit status and how long it lived, in seconds."""
        process = part.process
        if process is None:
            return -1, 0
        began = time.monotonic()
        showing = asyncio.create_task(self._show(part, output))
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

    async def _probe(self, part: FleetPart, pid: int) -> None:
        """Probe the part until it is up."""
        if part.is_up is None:
            await asyncio.sleep(PRESUMED_UP_S)
        else:
            while not await part.is_up(pid):
                await asyncio.sleep(PROBE_S)
        part.history.came_up()
        self._note_parts()

    async def _show(self, part: FleetPart, output: BinaryIO | None) -> None:
        """Show the lines of a part until the pipe is closed."""
        if output is None or self._show_line is None:
            return
        lines = asyncio.StreamReader(limit=LINE_LIMIT)
        loop = asyncio.get_running_loop()
        pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), output)
        with closing(pipe):
            while True:
                try:
                    line = await lines.readline()
                except ValueError:
                    continue  # longer than LINE_LIMIT
                if not line:
                    return
                if text := line.decode(errors="replace").rstrip():
                    self._show_line(part.name, text)

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
