"""A real core of every task, whose results are told instead of computed: as if a very small model had made them."""

import math
import threading
from array import array
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson

from corelane.domain.dispatch import Core
from corelane.engine.null import NullItem, NullRunner, NullTask, null_result
from corelane.engine.task import Query, Ready
from corelane.store.feeding import Feeder
from corelane.tasks.handler.wire import HandlerOptions
from corelane.tasks.registry import TASKS
from tests.corelane.store_bench import Bench, announce
from tests.tools.simulated_core import SimulatedCore
from workers.core.drain import drain

#: Tasks whose items have a form of their own. Those of a handler have the form that its class says.
FORMED = [name for name in TASKS if name != HandlerOptions.task]


def vector(query: Query) -> dict[str, Any]:
    """Return the counts of three letters, of length 1, and the number of words."""
    counts = [query.text.count(letter) + 0.5 for letter in "aeo"][: query.options.dimensions]
    length = math.hypot(*counts)
    words, tokens = query.text.split(), len(query.text.split()) + 2
    if query.options.output == "pieces":
        special = [{"id": 0, "text": text, "special": True} for text in ("[CLS]", "[SEP]")]
        places = [(word, query.text.index(word)) for word in words]
        inside = [{"id": 1, "text": w, "special": False, "start": at, "stop": at + len(w)} for w, at in places]
        return {"embedding": None, "tokens": tokens, "pieces": [special[0], *inside, special[1]]}
    if query.options.output == "decoded":
        texts = {False: query.text, True: f"[CLS] {query.text} [SEP]"}
        return {"embedding": None, "tokens": 2, "pieces": [{"text": texts[at], "special": at} for at in texts]}
    numbers = [count / length for count in counts] * (tokens if query.options.output == "tokens" else 1)
    return {"embedding": memoryview(array("f", numbers)), "tokens": tokens}


def labels(query: Query) -> dict[str, Any]:
    """Return labels by how often their first letter is in the text."""
    names = getattr(query.options, "labels", None) or query.beside or ("anger", "joy")
    found: list[Any] = [{"label": name, "score": query.text.count(name[0]) / len(query.text)} for name in names]
    best = sorted(found, key=lambda each: -each["score"])
    return {"labels": best[: getattr(query.options, "top_k", None)]}


def entities(query: Query) -> dict[str, Any]:
    """Return the words in capitals."""
    found, at = [], 0
    for word in query.text.split():
        at = query.text.index(word, at)
        if word[0].isupper():
            found.append({"label": "PER", "start": at, "end": at + len(word), "text": word, "score": 0.9})
    return {"entities": found}


def ranking(query: Query) -> dict[str, Any]:
    """Return texts by the share of the query's words in them."""
    texts, words = orjson.loads(query.text), set(query.beside.lower().split())
    scores = [len(words & set(text.lower().split())) / len(words) for text in texts]
    order = sorted(range(len(texts)), key=lambda index: -scores[index])[: query.options.top_n]
    more = {index: {"text": texts[index]} if query.options.return_texts else {} for index in order}
    return {"ranking": [{"index": index, "score": scores[index]} | more[index] for index in order]}


TELLS: Mapping[str, Callable[[Query], dict[str, Any]]] = {
    "text-classification": labels,
    "zero-shot-classification": labels,
    "token-classification": entities,
    "feature-extraction": vector,
    "text-ranking": ranking,
}

#: A text that fails.
TOO_LONG = "too long"


class ToldTask(NullTask):
    """Tells the result of each query."""

    def tokenize(self, queries: Sequence[tuple[Hashable, Query]]) -> list[Ready[NullItem]]:
        """Return the result of each query, or the error of one that is too long."""
        return [(key, self._result(query)) for key, query in queries]

    @staticmethod
    def _result(query: Query) -> dict[str, Any]:
        name = query.options.task
        cuts = getattr(query.options, "long", "error") == "cut" and query.text == TOO_LONG
        if query.text == TOO_LONG and not cuts:
            error = {"code": "text_too_long", "detail": "the text has 9 tokens, and 8 may be read at once"}
            return null_result(name) | {"status": "failed", "error": error}
        more = {"windows": 1} | ({"cut": 1} if cuts else {})
        return null_result(name) | (TELLS[name](query) if name in TELLS else {}) | more


class ToldRunner(NullRunner):
    """Runs a version that is named after a task."""

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self._task = ToldTask(needs_batches=False)
        self.work = self._task.work


@contextmanager
def telling(bench: Bench, tasks: Sequence[str] = tuple(TASKS), default: str = "question-answering") -> Iterator[None]:
    """Have one core serve a version of each task, until the end of the block; ``default`` is the default model's."""
    settings = bench.settings.model_copy(update={"linger_s": 0.0})
    runners = {f"{name}@0": ToldRunner(f"{name}@0") for name in (default, *tasks)}
    core, stop = SimulatedCore(settings, Core("told", 0), bench.bell, runners), threading.Event()
    core.begin_life()
    for version, runner in runners.items():
        names = [runner.name, "default"] if runner.name == default else [runner.name]
        announce(settings, "told/0", version, names, runner.summary)

    feeder = Feeder(settings, bench.bell)

    def serve() -> None:
        while not stop.wait(0.005):
            for job in feeder.jobs():
                feeder.feed(job)
            drain(core, stop.is_set)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        core.close()
        core.dispatch.close()
