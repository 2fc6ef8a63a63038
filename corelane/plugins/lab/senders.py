"""How requests are sent: the interface of a sender, and a base class for all that use HTTP.

A sender is named ``module:Class``, so that each process of the generator can import it. It is created with a ``Target``
and a ``Manner``. To write a sender for another service, subclass ``HttpSender`` and write ``ask``.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

import orjson

from corelane.domain.jobs import DEFAULT_TASK
from corelane.errors import InvalidInput
from corelane.plugins.lab.http import Broken, Connections, Response
from corelane.plugins.lab.schema import Hearing, Outcome, Way
from corelane.plugins.lab.workload import BenchItem, Given, bench_of

#: Statuses that mean that the service is overloaded.
REFUSALS = (429, 503)

#: The pause before a refused request is sent again, if the service gives none, in seconds.
RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class Target:
    """The service that is measured."""

    url: str
    api_key: str | None = None
    model: str = "default"
    options: dict[str, Any] = field(default_factory=dict)
    #: The secret that signs webhooks.
    webhook_secret: str | None = None
    task: str = DEFAULT_TASK

    @property
    def head(self) -> dict[str, Any]:
        """The model and the options of a request, as its body has them."""
        return {"model": self.model} | ({"options": self.options} if self.options else {})

    def batch_line(self, number: int, asked: BenchItem) -> bytes:
        """Return a line of a file for a batch, with the number as its id; raise InvalidInput if the task has none."""
        path, body = bench_of(self.task).path, {**self.head, **asked.fields}
        if path is None:
            raise InvalidInput(f"there are no batches of files for {self.task}: send lines")
        line = {"custom_id": str(number), "method": "POST", "url": path, "body": body}
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


@dataclass(frozen=True, slots=True)
class Manner:
    """How requests are sent and their ends are heard. Times in seconds."""

    way: Way = "item"
    hearing: Hearing = "wait"
    timeout_s: float = 60.0
    poll_s: float = 0.05
    retries_refusals: bool = False


@dataclass(slots=True)
class Reply:
    """The outcome of a request. Times are the monotonic clock's, in seconds."""

    outcome: Outcome = "unfinished"
    sent_s: float | None = None
    accepted_s: float | None = None
    first_s: float | None = None
    ended_s: float | None = None
    error: str | None = None
    detail: str | None = None
    job: str | None = None
    retries: int = 0
    results: list[Given] = field(default_factory=list)


class Sender(Protocol):
    """Sends requests in one process, any number at a time."""

    async def open(self, connections: int) -> None:
        """Connect in advance; raise CorelaneError if the service cannot be reached or the manner cannot work."""

    async def send(self, index: int, items: Sequence[BenchItem]) -> Reply:
        """Send one request and return its outcome; a failure is a reply too."""

    async def close(self) -> None:
        """Close all connections."""


class Refused(Exception):
    """The service is overloaded; ``after_s`` is when to try again, if it said so."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response
        after = response.headers.get("retry-after", "")
        self.after_s = float(after) if after.isdigit() else None


class Failed(Exception):
    """The request failed."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code, self.detail = code, detail


class HttpSender:
    """A sender over HTTP: bounds the time of a request, and turns failures into replies. Subclasses write ``ask``."""

    def __init__(self, target: Target, manner: Manner) -> None:
        self.target, self.manner = target, manner
        key = {"Authorization": f"Bearer {target.api_key}"} if target.api_key else {}
        self.http = Connections(target.url, {"Accept": "application/json", **key})

    async def open(self, connections: int) -> None:
        """Connect in advance."""
        await self.http.open(connections)

    async def close(self) -> None:
        """Close connections."""
        await self.http.close()

    async def send(self, index: int, items: Sequence[BenchItem]) -> Reply:
        """Send one request, with its time limit."""
        reply = Reply()
        try:
            async with asyncio.timeout(self.manner.timeout_s):
                await self._try(reply, index, items)
        except TimeoutError:
            reply.error, reply.detail = "timeout", f"no result within {self.manner.timeout_s:g} s"
        except Broken as error:
            reply.outcome, reply.error, reply.detail = "error", error.kind, error.detail
        except Failed as error:
            reply.outcome, reply.error, reply.detail = "error", error.code, error.detail
        except (LookupError, TypeError, ValueError) as error:
            reply.outcome, reply.error = "error", "not_understood"
            reply.detail = f"the response is not as expected: {type(error).__name__} {error}"
        return reply

    async def ask(self, reply: Reply, index: int, items: Sequence[BenchItem]) -> None:
        """Send the request and read its results into the reply; raise Refused, Failed or Broken."""
        raise NotImplementedError

    async def _try(self, reply: Reply, index: int, items: Sequence[BenchItem]) -> None:
        while True:
            try:
                await self.ask(reply, index, items)
            except Refused as refusal:
                if not self.manner.retries_refusals:
                    reply.outcome = "refused"
                    reply.error, reply.detail = problem_of(refusal.response)
                    return
                await asyncio.sleep(RETRY_S if refusal.after_s is None else refusal.after_s)
                reply.retries += 1
            else:
                reply.outcome = "ok"
                return

    def began(self, reply: Reply, response: Response) -> Response:
        """Note when the request was first sent; raise Refused or Failed if it was not accepted."""
        if reply.sent_s is None:
            reply.sent_s = response.sent_s
        return taken(response)


def taken(response: Response) -> Response:
    """Return a successful response; raise Refused or Failed for any other."""
    if 200 <= response.status < 300:
        return response
    if response.status in REFUSALS:
        raise Refused(response)
    raise Failed(*problem_of(response))


def problem_of(response: Response) -> tuple[str, str]:
    """Return the code and the sentence of a refusal."""
    problem = response.json()
    if isinstance(problem, dict) and isinstance(problem.get("detail"), str):
        return str(problem.get("code", f"http_{response.status}")), problem["detail"]
    return f"http_{response.status}", response.body[:200].decode(errors="replace")


def make_sender(name: str, target: Target, manner: Manner) -> Sender:
    """Make the sender that ``module:Class`` names; raise InvalidInput if there is none."""
    module, _, kind = name.partition(":")
    try:
        sender: Sender = getattr(import_module(module), kind)(target, manner)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(f"{name!r} is no sender: {error}") from None
    return sender
