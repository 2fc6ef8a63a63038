"""``corelane top``: the state of the service on the terminal, live.

If output is not a terminal, the state is printed once, or repeatedly as lines of JSON. After a lost connection the last
state is shown, with a note, until the service replies again.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

from corelane.cli.commands import Made
from corelane.cli.errors import sentence_of
from corelane.cli.output import error_console, print_line
from corelane.cli.service import JsonOption, connect
from corelane.cli.waiting import WaitNotice
from corelane.errors import CorelaneError, ServiceError
from corelane.plugins.console.terminal import take_over
from corelane.plugins.console.top_view import Frame, render

if TYPE_CHECKING:
    from corelane.client import Client
    from corelane.domain.overview import Overview

#: Time between two drawings while the connection is lost, in seconds, so that the shown time advances.
REDRAW_S = 1.0

#: How long the command waits for an unfinished reading at the end, in seconds.
STOP_S = 0.5

#: Width of the output if it is not a terminal, in columns.
PRINTED_CHARS = 200

#: Replies for which another try is useless.
REFUSALS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)

LiveClient = Annotated["Client", Made(partial(connect, patience_s=0, on_wait=WaitNotice(quiet=True)))]


class Poller:
    """Reads overviews in its own thread, so that a slow service does not block the terminal."""

    def __init__(self, read: Callable[[], "Overview"], interval_s: float) -> None:
        self._read, self._interval_s = read, interval_s
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._lost_since: float | None = None
        #: Why the last reading failed; empty if it succeeded.
        self.reason = ""
        self.overview: Overview | None = None
        self.refusal: CorelaneError | None = None

    def start(self, tell: Callable[[], None]) -> None:
        """Begin to read; call ``tell`` after each reading."""

        def run() -> None:
            while not self._over.is_set() and self.refusal is None:
                self.poll()
                tell()
                self._over.wait(self._interval_s)

        self._thread = threading.Thread(target=run, daemon=True, name="poller")
        self._thread.start()

    def poll(self) -> None:
        """Read once; store the overview, or the reason why there is none."""
        try:
            self.overview = self._read()
            self._lost_since, self.reason = None, ""
        except CorelaneError as error:
            if isinstance(error, ServiceError) and error.status in REFUSALS:
                self.refusal = error
            self.reason = sentence_of(error)
            self._lost_since = self._lost_since or time.monotonic()

    def stop(self) -> None:
        """Stop reading. Waits for an unfinished reading, unless the service hangs."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(STOP_S)

    @property
    def problem(self) -> str:
        """Return why the last reading failed, and for how long readings have failed; empty if it succeeded."""
        since = self._lost_since
        if since is None:
            return ""
        return f"no reply for {time.monotonic() - since:.0f} s: {self.reason}"


def top(
    client: LiveClient,
    interval: Annotated[float, typer.Option(min=0.2, max=3600, help="Seconds between two readings.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print it once and end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show cores, lanes, rates and whether the backlog drains, live; q or Ctrl-C ends it."""
    console = Console(highlight=False, markup=False, emoji=False)
    if as_json and not once:
        _stream(client, interval)
    if once or not console.is_terminal:
        found = client.overview()
        if as_json:
            print_line(found)
            return
        if not console.is_terminal:
            console.width = PRINTED_CHARS
        console.print(render(Frame(client.base_url, found), console.width))
        return
    try:
        _watch(client, console, interval)
    except KeyboardInterrupt:
        return


def _stream(client: "Client", interval_s: float) -> NoReturn:
    """Print an overview a line, without end; report failed readings on standard error. Raise the service's refusal."""
    poller, told = Poller(client.overview, interval_s), ""
    while True:
        poller.poll()
        if poller.refusal is not None:
            raise poller.refusal
        if not poller.reason:
            print_line(poller.overview)
        elif poller.reason != told:
            error_console().print(poller.reason, style="red")
        told = poller.reason
        time.sleep(interval_s)


def _watch(client: "Client", console: Console, interval_s: float) -> None:
    """Draw until q or Ctrl-C; raise the service's refusal."""
    poller = Poller(client.overview, interval_s)
    hint = f"every {interval_s:g} s, q ends"
    with take_over(console) as screen:
        poller.start(screen.wake)
        try:
            while poller.refusal is None:
                frame = Frame(client.base_url, poller.overview, poller.problem, hint)
                screen.show(render(frame, console.width, screen.height))
                if screen.wait(REDRAW_S) == "q":
                    return
        finally:
            poller.stop()
    raise poller.refusal
