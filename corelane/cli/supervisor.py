"""Running the parts of one machine: started in order, watched, relaunched when they die, stopped in order.

Each part is a process group of its own, so Ctrl-C reaches only the supervisor. Each dies with the supervisor, so that a
killed supervisor leaves no orphans; child processes of a killed part are killed too. Lines that a part writes are shown
with its name. ``parts.json`` holds the process ids and the addresses of the service. ``parts.py`` says when a part is
given up.
"""

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import orjson

from corelane.cli.parts import PRESUMED_UP_S, FleetPart, describe_status
from corelane.errors import SetupError

if TYPE_CHECKING:
    from corelane.cli.serve_output import Level, ServeOutput

#: The C library, loaded before any fork; PR_SET_PDEATHSIG of prctl(2): the signal a process gets when its parent dies.
LIBC, PR_SET_PDEATHSIG = ctypes.CDLL(None), 1

#: Time between two probes of a part that is not up yet, in seconds.
PROBE_S = 0.25

#: Longest time that a part's last lines are read after its end, in seconds.
LAST_WORDS_S = 1

#: Longest line shown of a part, in bytes; a longer one is split.
LINE_LIMIT = 1 << 20


class Supervisor:
    """Runs parts until it is asked to stop or a needed part is given up."""

    def __init__(self, output: "ServeOutput", parts_file: Path) -> None:
        self.output = output
        self._parts_file = parts_file
        self._about: dict[str, object] = {"is_ready": False}
        self._parts: list[FleetPart] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._over = asyncio.Event()
        self._stopping = False
        self.failure: str | None = None

    def say(self, text: str, level: "Level" = "info") -> None:
        """Say a sentence of the supervisor itself."""
        self.output.say(text, level)

    def note(self, **about: object) -> None:
        """Write facts about the service into ``parts.json``."""
        self._about |= about
        self._note_parts()

    def request_stop(self) -> None:
        """Have ``wait`` return; safe from a signal handler."""
        self._over.set()

    def fail(self, reason: str) -> None:
        """End everything with a failure."""
        self.failure = self.failure or reason
        self._over.set()

    @property
    def has_begun(self) -> bool:
        """Whether there is anything to stop."""
        return bool(self._parts)

    @property
    def is_over(self) -> bool:
        """Whether a stop was asked for or a needed part was given up."""
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
        """Count the time that parts take to come up from now on, by the prefix of their names: they had to wait."""
        for part in self._parts:
            if part.name.startswith(prefix):
                part.history.begins()

    def names(self) -> set[str]:
        """Return the parts that there are, those that are being stopped included."""
        return {part.name for part in self._parts}

    async def end(self, name: str) -> None:
        """Stop one part for good; the others continue."""
        for part in [part for part in self._parts if part.name == name]:
            part.is_leaving = True
            await self._stop_part(part)
            self._parts.remove(part)
        self._note_parts()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until a stop is asked for or a part is given up; return False after ``timeout_s`` without either."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), timeout_s)
        return self._over.is_set()

    async def stop(self, order: Sequence[Sequence[str]]) -> None:
        """Stop the parts group by group, by the prefixes of their names; parts in no group stop first."""
        self._stopping = True
        self._over.set()
        named = [prefix for group in order for prefix in group]
        loose = [part for part in self._parts if not any(part.name.startswith(prefix) for prefix in named)]
        groups = [loose, *([p for p in self._parts if p.name.startswith(tuple(group))] for group in order)]
        for group in groups:
            await asyncio.gather(*(self._stop_part(part) for part in group))
        await asyncio.gather(*self._tasks, return_exceptions=True)
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

        The pipe is made here: with one of asyncio's, a process counts as running while any child holds the other end.
        """
        argv = part.argv() if callable(part.argv) else part.argv
        reading, writing = os.pipe()
        try:
            part.process = await asyncio.create_subprocess_exec(
                *argv,
                env=dict(part.env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
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

    async def _watch(self, part: FleetPart, output: BinaryIO) -> None:
        """Relaunch the part each time it dies, until it is given up or everything stops."""
        history = part.history
        while True:
            status, lived_s = await self._live(part, output)
            if self._is_ending(part):
                return
            history.died(status, lived_s)
            if part.needed and history.is_hopeless(part.first_tries):
                times = f", {len(history.deaths)} times in a row" if len(history.deaths) > 1 else ""
                self.fail(f"{part.name} keeps failing: it {describe_status(status)}{times}; the reason is shown above")
                return
            self.say(f"{part.name} {describe_status(status)}; it comes back in {history.pause_s:g} s", "error")
            if await self.wait(history.pause_s) or self._is_ending(part):
                return
            while (next_output := await self._relaunch(part)) is None:
                if await self.wait(history.pause_s) or self._is_ending(part):
                    return
            output = next_output
            if self._is_ending(part):
                await self._stop_part(part)

    def _is_ending(self, part: FleetPart) -> bool:
        """Return whether the part is not to come back."""
        return self._stopping or part.is_leaving

    async def _relaunch(self, part: FleetPart) -> BinaryIO | None:
        """Launch a part again; return None if the machine lacks a process or memory for it now."""
        try:
            output = await self._launch(part)
        except (OSError, SetupError) as error:
            self.say(f"{part.name} cannot be launched: {error}", "error")
            return None
        self.say(f"{part.name} is launched again")
        return output

    async def _live(self, part: FleetPart, output: BinaryIO) -> tuple[int, float]:
        """Wait for the end of a part's process; return its exit status and its life in seconds."""
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
        known = {
            part.name: {
                "pid": part.process.pid,
                "launched_at": part.history.launched_at.isoformat(timespec="milliseconds"),
                "launches": part.history.launches,
                "is_up": part.history.is_up,
                "trouble": part.history.issue(datetime.now(UTC)),
            }
            for part in self._parts
            if part.process is not None
        }
        found = {"pid": os.getpid(), **self._about, "parts": known}
        beside = self._parts_file.with_suffix(".new")
        with suppress(OSError):
            beside.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
            beside.replace(self._parts_file)


def prepare(cpus: frozenset[int]) -> None:
    """Pin this process, if CPUs are given, and tie it to its parent; for ``preexec_fn``."""
    if cpus:
        os.sched_setaffinity(0, cpus)
    die_with_parent()


def die_with_parent() -> None:
    """Have this process get SIGTERM when its parent dies; for ``preexec_fn``."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
