"""Running the parts of one machine: started in order, watched, relaunched where that is their way, stopped in order.

Each part is a process group of its own, so Ctrl-C reaches only the supervisor; each dies with it, so a killed
supervisor leaves no orphans. Lines a part writes are shown behind its coloured name. A part that may be relaunched
(a worker) comes back with growing pauses; one that keeps dying, or any other part that ends unasked, ends
everything with a failure, whatever status it ended with.
"""

import asyncio
import ctypes
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

#: PR_SET_PDEATHSIG of prctl(2): the signal a process gets when its parent dies.
PR_SET_PDEATHSIG = 1

#: Pauses before a part is relaunched, in seconds; one that lived longer than STABLE_S starts over at the first.
RELAUNCH_PAUSES_S = (0.2, 1, 2, 5, 10)

#: A part that lived this long was well, in seconds: what cannot start dies sooner, and what is killed now and then
#: must not end the service.
STABLE_S = 15

#: Longest line shown of a part, in bytes; the rest of it follows as lines of its own.
LINE_LIMIT = 1 << 20

COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")


@dataclass(slots=True)
class Part:
    """One process to run: what it is called, how it starts, and how long it may take to stop."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    relaunch: bool = False
    grace_s: float = 10
    process: asyncio.subprocess.Process | None = None
    crashes: list[float] = field(default_factory=list)


class Supervisor:
    """Runs parts until asked to stop or one fails for good."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._parts: list[Part] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._over = asyncio.Event()
        self._stopping = False
        self.failure: str | None = None

    def say(self, text: str, style: str = "bold") -> None:
        """A line of the supervisor's own."""
        self._console.print(Text("corelane", style=style).append(" │ ", style="dim").append(text, style=style))

    def request_stop(self) -> None:
        """Have ``wait`` return; safe from a signal handler."""
        self._over.set()

    def fail(self, reason: str) -> None:
        """End everything with a failure."""
        self.failure = self.failure or reason
        self._over.set()

    @property
    def is_over(self) -> bool:
        """Whether a stop was asked for or a part failed."""
        return self._over.is_set()

    async def start(self, part: Part) -> None:
        """Launch a part and watch it from now on."""
        self._parts.append(part)
        await self._launch(part)
        self._tasks.append(asyncio.create_task(self._watch(part), name=part.name))

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Until a stop is asked for or a part fails; False after ``timeout_s`` without either."""
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

    async def _stop_part(self, part: Part) -> None:
        process = part.process
        if process is None or process.returncode is not None:
            return
        for sign, grace_s in ((signal.SIGTERM, part.grace_s), (signal.SIGQUIT, 3), (signal.SIGKILL, 3)):
            with suppress(ProcessLookupError):
                process.send_signal(sign)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), grace_s)
                return
            self.say(f"{part.name} did not stop within {grace_s:g} s of {sign.name}", "yellow")

    async def _launch(self, part: Part) -> None:
        part.process = await asyncio.create_subprocess_exec(
            *part.argv,
            env=dict(part.env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,
            limit=LINE_LIMIT,
        )

    async def _watch(self, part: Part) -> None:
        while True:
            began = time.monotonic()
            status = await self._follow(part)
            if self._stopping:
                return
            if not part.relaunch:
                self.fail(f"{part.name} ended unasked with status {status}")
                return
            part.crashes = [*part.crashes, began] if time.monotonic() - began < STABLE_S else [began]
            if len(part.crashes) > len(RELAUNCH_PAUSES_S):
                self.fail(f"{part.name} keeps dying (status {status}, {len(part.crashes)} times in a row)")
                return
            pause = RELAUNCH_PAUSES_S[len(part.crashes) - 1]
            self.say(f"{part.name} died with status {status}; it comes back in {pause:g} s", "bold red")
            if await self.wait(pause):
                return
            await self._launch(part)

    async def _follow(self, part: Part) -> int:
        """Show what a part writes until it ends; its status."""
        process = part.process
        if process is None or process.stdout is None:
            return -1
        colour = COLOURS[self._parts.index(part) % len(COLOURS)]
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:
                continue
            if not line:
                break
            text = Text.from_ansi(line.decode(errors="replace").rstrip())
            self._console.print(Text(f"{part.name:8}", style=colour).append(" │ ", style="dim").append_text(text))
        return await process.wait()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
