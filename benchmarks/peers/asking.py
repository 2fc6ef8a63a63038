"""How callers ask each service, over connections that stay open: a question a request, or a list of texts."""

import itertools
from collections.abc import Callable, Sequence
from multiprocessing.connection import Client
from typing import Any
from urllib.parse import urlsplit

import orjson

from benchmarks.callers import Ask
from benchmarks.harness import Connection
from benchmarks.questions import Question

#: Returns, for the addresses of a service, what makes a caller's way to ask. Callers take the addresses in turn.
Asker = Callable[[Sequence[str]], Callable[[], Ask]]


def posting(path: str, body_of: Callable[[Any], Any], answer_of: Callable[[Any], Any], **headers: str) -> Asker:
    """Return how a service is asked by POST: the path, the body, and where the answer is."""

    def asker(urls: Sequence[str]) -> Callable[[], Ask]:
        turns = itertools.cycle(urls)

        def caller() -> Ask:
            connection = Connection(next(turns))
            return lambda asked: answer_of(connection.call("POST", path, orjson.dumps(body_of(asked)), **headers))

        return caller

    return asker


def text_of(result: dict[str, Any]) -> str:
    """Return the text of a question's answer."""
    return (result["answer"] or {}).get("text") or ""


def vector_of(result: dict[str, Any]) -> Any:
    """Return the vector of a text; raise RuntimeError if it failed."""
    if result.get("embedding"):
        return result["embedding"]
    raise RuntimeError(str(result))


def item_of(asked: Any) -> dict[str, str]:
    """Return an item of a job: a question, or a list of one text."""
    return asked.item() if isinstance(asked, Question) else {"text": asked[0]}


def texts(model: str) -> Asker:
    """Return what asks Corelane for the vector of one text, given as a list of one."""
    return posting(
        "/v1/jobs",
        lambda asked: {"model": model, **item_of(asked)},
        lambda found: [vector_of(found["results"][0])],
        Prefer="wait=60",
    )


corelane = posting("/v1/answers", lambda asked: {**item_of(asked), "options": {"no_answer": False}}, text_of)
predict = posting("/predict", item_of, lambda found: found["text"] or "")
vectors = posting("/predict", lambda asked: {"texts": asked}, lambda found: found["vectors"])
openai = posting(
    "/v1/embeddings", lambda asked: {"input": asked}, lambda found: [each["embedding"] for each in found["data"]]
)


def loop(urls: Sequence[str]) -> Callable[[], Ask]:
    """Hand lists to the processes of a loop; an answer takes 0.1 ms more than the loop itself."""
    turns = itertools.cycle(urls)

    def caller() -> Ask:
        parts = urlsplit(next(turns))
        connection = Client((parts.hostname or "", parts.port or 0))

        def ask(asked: list[str]) -> Any:
            connection.send(asked)
            return connection.recv()

        return ask

    return caller
