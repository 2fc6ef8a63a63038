"""Running the parts of one machine: started in order, watched, relaunched when they die, stopped in order.

Each part is a process group of its own, so Ctrl-C reaches only the supervisor; each dies with it, so a killed
supervisor leaves no orphans, and what a killed part leaves behind is killed too. Lines a part writes are shown with its
name. Which part runs under which process id stands in ``parts.json``, with the addresses of the service. When a part is
given up is said in ``parts.py``.
"""

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import orjson

from corelane.cli.parts import PRESUMED_UP_S, Part, describe_status
from corelane.cli.voice import Level, Voice
from corelane.errors import SetupError

#: PR_SET_PDEATHSIG of prctl(2): the signal a process gets when its parent dies.
PR_SET_PDEATHSIG = 1

#: Time between two looks whether a part is up, in seconds.
PROBE_S = 0.25

#: What a part wrote last is read for at most this long after its end, in seconds.
LAST_WORDS_S = 1

#: Longest line shown of a part, in bytes; the rest of it follows as lines of its own.
LINE_LIMIT = 1 << 20

PARTS_FILE = "parts.json"


class Supervisor:
    """Runs parts until asked to stop or one that is needed is given up."""

    def __init__(self, voice: Voice, parts_file: Path) -> None:
        self.voice = voice
        self._parts_file = parts_file
        self._about: dict[str, object] = {"is_ready": False}
        self._parts: list[Part] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._over = asyncio.Event()
        self._stopping = False
        self.failure: str | None = None

    def say(self, text: str, level: Level = "info") -> None:
        """A line of the supervisor's own."""
        self.voice.say(text, level)

    def note(self, **about: object) -> None:
        """Write something about the service into ``parts.json``."""
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

    async def start(self, part: Part) -> None:
        """Launch a part and watch it from now on."""
        self._parts.append(part)
        output = await self._launch(part)
        self._tasks.append(asyncio.create_task(self._watch(part, output), name=part.name))

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Until a stop is asked for or a part is given up; False after ``timeout_s`` without either."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), timeout_s)
        return self._over.is_set()

    async def stop(self, order: Sequence[Sequence[str]]) -> None:
        """Stop the parts, group after group, by name prefixes; those in no group go first."""
        self._stopping = True
        self._over.set()
        named = [prefix for group in order for prefix in group]
        loose = [part for part in self._parts if not any(part.name.startswith(prefix) for prefix in named)]
        groups = [loose, *([p for p in self._parts if p.name.startswith(tuple(group))] for group in order)]
        for group in groups:
            await asyncio.gather(*(self._stop_part(part) for part in group))
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._parts_file.unlink(missing_ok=True)

    async def _stop_part(self, part: Part) -> None:
        process = part.process
        if process is None or process.returncode is not None:
            return
        for sign, grace_s in ((signal.SIGTERM, part.grace_s), (signal.SIGQUIT, 3), (signal.SIGKILL, 3)):
            with suppress(ProcessLookupError):
                process.send_signal(sign)
                # One that was stopped with SIGSTOP could not obey.
                process.send_signal(signal.SIGCONT)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), grace_s)
                return
            self.say(f"{part.name} did not stop within {grace_s:g} s of {sign.name}", "warning")

    async def _launch(self, part: Part) -> BinaryIO:
        """Start its process; the end of a pipe from which to read what it writes.

        The pipe is ours: with asyncio's, a process has ended only when nobody holds the other end any more.
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
                preexec_fn=_die_with_parent,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        part.history.launched()
        self._note_parts()
        return os.fdopen(reading, "rb", 0)

    async def _watch(self, part: Part, output: BinaryIO) -> None:
        """Relaunch the part each time it dies, until it is given up or everything stops."""
        history = part.history
        while True:
            status, lived_s = await self._live(part, output)
            if self._stopping:
                return
            history.died(status, lived_s)
            if part.needed and history.is_hopeless(part.first_tries):
                times = f", {len(history.deaths)} times in a row" if len(history.deaths) > 1 else ""
                self.fail(f"{part.name} keeps failing: it {describe_status(status)}{times}; its reason stands above")
                return
            self.say(f"{part.name} {describe_status(status)}; it comes back in {history.pause_s:g} s", "error")
            if await self.wait(history.pause_s):
                return
            while (next_output := await self._relaunch(part)) is None:
                if await self.wait(history.pause_s):
                    return
            output = next_output

    async def _relaunch(self, part: Part) -> BinaryIO | None:
        """Launch it again; None where the machine has no process or memory to spare now."""
        try:
            output = await self._launch(part)
        except (OSError, SetupError) as error:
            self.say(f"{part.name} cannot be launched: {error}", "error")
            return None
        self.say(f"{part.name} is launched again")
        return output

    async def _live(self, part: Part, output: BinaryIO) -> tuple[int, float]:
        """One life of a part: its exit status, and its length in seconds."""
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
                # A killed worker's child may be frozen, and would hold its core.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            await asyncio.wait((showing,), timeout=LAST_WORDS_S)
            return status, lived_s
        finally:
            probing.cancel()
            showing.cancel()
            pipe.close()

    async def _probe(self, part: Part, pid: int) -> None:
        """Ask until the part is up."""
        if part.is_up is None:
            await asyncio.sleep(PRESUMED_UP_S)
        else:
            while not await part.is_up(pid):
                await asyncio.sleep(PROBE_S)
        part.history.came_up()
        self._note_parts()

    async def _show(self, part: Part, output: asyncio.StreamReader) -> None:
        """Show what a part writes until nobody can write any more."""
        while True:
            try:
                line = await output.readline()
            except ValueError:
                continue
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            if text:
                self.voice.show(part.name, text)
            if part.comment is not None and (comment := part.comment(text)):
                self.say(comment, "error")

    def _note_parts(self) -> None:
        """Write down which part runs under which process id. A full disk is no reason to end the service."""
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


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
