"""How callers ask each service: one question per request, over connections that stay open."""

import itertools
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import orjson

from benchmarks.callers import Ask
from benchmarks.harness import Connection
from benchmarks.questions import Question

#: Returns, for the addresses of a service, what makes a caller's way to ask.
Asker = Callable[[list[str]], Callable[[], Ask]]

#: A task of Celery is waited for at most this long, in seconds.
TIMEOUT_S = 60.0


def _posting(path: str, body_of: Callable[[Question], Any], text_of: Callable[[Any], str | None]) -> Asker:
    """Return how a service is asked by POST: the path, the body, and where the answer's text is."""

    def asker(urls: list[str]) -> Callable[[], Ask]:
        def caller() -> Ask:
            connection = Connection(urls[0])

            def ask(asked: Question) -> str:
                found = connection.call("POST", path, orjson.dumps(body_of(asked)))
                return text_of(found) or ""

            return ask

        return caller

    return asker


corelane = _posting(
    "/v1/answers",
    lambda asked: asked.item() | {"options": {"no_answer": False}},
    lambda found: (found["answer"] or {}).get("text"),
)
predict = _posting("/predict", Question.item, lambda found: found["text"])
bento = _posting("/predict", lambda asked: {"questions": [asked.item()]}, lambda found: found[0]["text"])


def sample(urls: list[str]) -> Callable[[], Ask]:
    """Ask the sample's servers, one a core, each in turn, as the sample's own client does."""
    turns = itertools.cycle(range(len(urls)))

    def caller() -> Ask:
        connections = [Connection(url) for url in urls]

        def ask(asked: Question) -> str:
            query = urlencode({"seq_0": asked.question, "seq_1": asked.context})
            return str(connections[next(turns)].call("GET", f"/predictions/model_0?{query}")["text"])

        return ask

    return caller


def celery(urls: list[str]) -> Callable[[], Ask]:
    """Ask the Celery worker through Celery's own client."""
    from celery import Celery

    app = Celery("peer", broker=urls[0], backend=urls[0])
    app.conf.update(task_default_queue="peer")

    def ask(asked: Question) -> str:
        return str(app.send_task("peer.answer", (asked.question, asked.context)).get(timeout=TIMEOUT_S)["text"])

    return lambda: ask
