"""How the generator of `corelane bench` asks each peer: a lone question a request, over kept connections."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import orjson

from corelane.plugins.lab.http import JSON_TYPE, Connections
from corelane.plugins.lab.senders import HttpSender, Manner, Reply, Target, now
from corelane.plugins.lab.workload import Given
from corelane.quality.squad import Question

#: Option of a target: all addresses of a peer that listens on several.
URLS = "urls"


class PredictSender(HttpSender):
    """Asks LitServe and Ray Serve: a question as JSON."""

    async def ask(self, reply: Reply, index: int, questions: Sequence[Question]) -> None:  # noqa: ARG002
        """Send a question and read its answer."""
        body = orjson.dumps({"question": questions[0].question, "context": questions[0].context})
        response = self.began(reply, await self.http.exchange("POST", "/predict", body, JSON_TYPE))
        reply.ended_s = now()
        reply.results = [answered(response.json())]


class BentoSender(HttpSender):
    """Asks BentoML: a list of one question, which the service puts into its batches."""

    async def ask(self, reply: Reply, index: int, questions: Sequence[Question]) -> None:  # noqa: ARG002
        """Send a question and read its answer."""
        asked = [{"question": questions[0].question, "context": questions[0].context}]
        body = orjson.dumps({"questions": asked})
        response = self.began(reply, await self.http.exchange("POST", "/predict", body, JSON_TYPE))
        reply.ended_s = now()
        reply.results = [answered(response.json()[0])]


class SampleSender(HttpSender):
    """Asks the sample's servers, one a core, each in turn, as the sample's own client does."""

    def __init__(self, target: Target, manner: Manner) -> None:
        super().__init__(target, manner)
        self._servers = [Connections(url, {"Accept": "application/json"}) for url in target.options[URLS]]
        self._sent = 0

    async def open(self, connections: int) -> None:
        """Connect ahead to each server."""
        for server in self._servers:
            await server.open(-(-connections // len(self._servers)))

    async def close(self) -> None:
        """Close connections."""
        for server in self._servers:
            await server.close()

    async def ask(self, reply: Reply, index: int, questions: Sequence[Question]) -> None:  # noqa: ARG002
        """Send a question and read its answer; it has no offsets."""
        server = self._servers[self._sent % len(self._servers)]
        self._sent += 1
        query = urlencode({"seq_0": questions[0].question, "seq_1": questions[0].context})
        response = self.began(reply, await server.exchange("GET", f"/predictions/model_0?{query}"))
        reply.ended_s = now()
        reply.results = [answered(response.json())]


class CelerySender:
    """Asks the Celery worker through Celery's own client: a thread a caller, as results are waited for."""

    def __init__(self, target: Target, manner: Manner) -> None:
        from celery import Celery

        self._app = Celery("peer", broker=target.url, backend=target.url)
        self._app.conf.update(task_default_queue="peer")
        self._timeout_s = manner.timeout_s
        self._threads: ThreadPoolExecutor | None = None

    async def open(self, connections: int) -> None:
        """Start the threads."""
        self._threads = ThreadPoolExecutor(connections)

    async def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def send(self, index: int, questions: Sequence[Question]) -> Reply:  # noqa: ARG002
        """Publish a task and wait for its result."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._ask, questions[0])

    def _ask(self, question: Question) -> Reply:
        reply = Reply(sent_s=time.monotonic())
        try:
            pending = self._app.send_task("peer.answer", (question.question, question.context))
            reply.accepted_s, reply.job = time.monotonic(), str(pending.id)
            found = pending.get(timeout=self._timeout_s)
        except Exception as error:
            reply.outcome, reply.error, reply.detail = "error", type(error).__name__, str(error)
        else:
            reply.outcome, reply.ended_s, reply.results = "ok", time.monotonic(), [answered(found)]
        return reply


def answered(found: dict[str, Any]) -> Given:
    """Return a peer's answer to the only question of a request."""
    return Given(0, found["text"] or None, found.get("start"), found.get("end"))
