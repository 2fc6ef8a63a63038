"""A service on a thread that answers each question with the first word of its passage, when it is told to."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from corelane.plugins.lab.http import read_head

MODEL = {"id": "words@1", "name": "words", "aliases": ["default"], "dtype": "fp32", "target": "cpu", "buckets": []}

FIXED: dict[str, Any] = {
    "/v1/models": {"data": [MODEL]},
    "/v1/cores": {"data": [{"core": "a/0", "state": "idle", "cpus": [0], "models": []}]},
    "/openapi.json": {"info": {"version": "9.9"}},
}


@dataclass
class Answering:
    """The service. ``refusals`` are the statuses of the next answers; ``delay_s`` is how long each takes."""

    url: str = ""
    delay_s: float = 0.0
    refusals: list[int] = field(default_factory=list)
    answer: str = ""
    #: From this many answers on, it answers something else.
    turns_after: int | None = None
    answer_later: str = ""
    paths: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    connections: int = 0
    breaks: bool = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                first, headers = await read_head(reader)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                path = first.split(" ")[1]
                self.paths.append(path)
                if self.breaks:
                    return
                status, found = await self.respond(path, orjson.loads(body) if body else {})
                content = orjson.dumps(found)
                retry = "Retry-After: 0\r\n" if status == 429 else ""
                head = f"HTTP/1.1 {status} -\r\n{retry}Transfer-Encoding: chunked\r\n\r\n"
                parts = [content[: len(content) // 2], content[len(content) // 2 :]]
                chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part)
                writer.write(head.encode() + chunks + b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def respond(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path in FIXED:
            return 200, FIXED[path]
        if path != "/v1/answers":
            return 404, {"code": "not_found", "detail": "there is nothing here"}
        self.bodies.append(body)
        await asyncio.sleep(self.delay_s)
        if self.refusals and (status := self.refusals.pop(0)) != 200:
            return status, {"code": "overloaded", "detail": "too much work"}
        if self.turns_after is not None and len(self.bodies) > self.turns_after:
            self.answer = self.answer_later
        text = self.answer or body["context"].split()[0]
        return 200, {"index": 0, "status": "succeeded", "answer": {"text": text, "start": 0, "end": len(text)}}


@contextmanager
def answering() -> Iterator[Answering]:
    """Run the service."""
    service, loop, began, stop = Answering(), asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def live() -> None:
        server = await asyncio.start_server(service.serve, "127.0.0.1", 0, backlog=2048)
        service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        began.set()
        await stop.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(live()), daemon=True)
    thread.start()
    began.wait(30)
    yield service
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)
    loop.close()
