"""Handlers that do right, and handlers that do wrong."""

import logging
import multiprocessing
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, RootModel, field_validator

from corelane import FileUrl, Handler
from corelane.errors import InvalidInput, Unavailable

GOOD, BAD = {"clean", "good", "kind"}, {"bad", "dirty", "rude"}


class Text(BaseModel):
    text: str = Field(examples=["The room was clean."])


class Bare(BaseModel):
    text: str


class Label(BaseModel):
    label: str
    score: float = 1.0


class Sentiment(Handler):
    Input = Text
    Output = Label

    def setup(self, core: Any) -> None:
        self.core = core

    def predict(self, items: list[Text]) -> list[Any]:
        return [self.judge(item.text) for item in items]

    def judge(self, text: str) -> dict[str, Any]:
        words = set(text.lower().split())
        return {"label": "good" if len(words & GOOD) >= len(words & BAD) else "bad"}


class SecondSentiment(Sentiment):
    def judge(self, text: str) -> dict[str, Any]:
        return super().judge(text) | {"score": 0.5}


class Bounded(Sentiment):
    max_item_bytes = 100


class Slow(Sentiment):
    """Takes a while for each item, and writes down each that it begins."""

    max_batch = 8

    def judge(self, text: str) -> dict[str, Any]:
        time.sleep(0.01)
        return super().judge(text)


class Row(BaseModel):
    index: int
    id: str


class Rows(RootModel[list[Row]]):
    pass


class Listing(Slow):
    """Gives objects with the fields that results have themselves."""

    Output = Rows  # type: ignore[assignment]

    def judge(self, text: str) -> Any:
        super().judge(text)
        return [{"index": 0, "id": "a"}, {"index": 1, "id": "b"}]


class Careful(Sentiment):
    """Fails single items in every way that there is, and notes the size of each batch."""

    def setup(self, core: Any) -> None:
        super().setup(core)
        self.batches: list[list[str]] = []

    def predict(self, items: list[Text]) -> list[Any]:
        texts = [item.text for item in items]
        self.batches.append(texts)
        if "raise" in texts:
            raise ValueError("no such thing")
        if "leave" in texts:
            raise SystemExit(3)
        outputs: list[Any] = [self.judge(text) for text in texts]
        ways = {
            "return": ValueError("this one alone"),
            "refuse": InvalidInput("this one is none of mine"),
            "form": {"score": 1.0},
            "none": None,
        }
        outputs = [ways.get(text, output) for text, output in zip(texts, outputs, strict=True)]
        if "shorten" in texts:
            outputs.pop()
        return {"not": "a list"} if "object" in texts else outputs  # type: ignore[return-value]


class Translator(Handler):
    """Has options, units and a bound for them."""

    Input = Text
    Output = Label
    max_batch = 4
    max_batch_units = 10

    class Options(BaseModel):
        language: Literal["de", "fr"] = "de"

    def setup(self, core: Any) -> None:
        self.batches: list[list[str]] = []

    def units(self, item: Text) -> int:
        return len(item.text)

    def predict(self, items: list[Text], options: Options) -> list[Label]:
        self.batches.append([item.text for item in items])
        return [Label(label=f"{options.language}:{item.text}") for item in items]


class Sizes(Handler):
    """Gives the size and the type of a file."""

    class Input(BaseModel):
        image: FileUrl

    class Output(BaseModel):
        size: int
        type: str

    def predict(self, items: list[Input]) -> list[dict[str, Any]]:
        return [{"size": len(item.image.bytes), "type": item.image.content_type} for item in items]


class Writer(Sentiment):
    """Yields."""

    def predict(self, items: list[Text]) -> Iterator[list[Label]]:  # type: ignore[override]
        yield []


class Hanging(Sentiment):
    """Never comes back from some items, and dies of others."""

    timeout_s = 1.0

    def judge(self, text: str) -> dict[str, Any]:
        if text == "hang":
            time.sleep(3600)
        if text == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if text == "segment":
            os.kill(os.getpid(), signal.SIGSEGV)
        if text == "exit":
            os._exit(3)
        if text == "memory":
            resource.setrlimit(resource.RLIMIT_AS, (2**34, resource.RLIM_INFINITY))
            bytearray(2**36)
        return super().judge(text)


def work(text: str) -> tuple[str, int]:
    time.sleep(0.1)
    return text.upper(), os.getpid()


class Parallel(Handler):
    """Has processes of its own, of each kind."""

    Input = Bare
    Output = Label

    def setup(self, core: Any) -> None:
        self.pool = multiprocessing.Pool(2)
        self.spawned = multiprocessing.get_context("spawn").Pool(1)
        self.others = subprocess.Popen(["sleep", "3600"])

    def predict(self, items: list[Text]) -> list[Any]:
        with ProcessPoolExecutor(2) as executor:
            pids = {pid for _, pid in executor.map(work, ["a", "b"])} | {self.others.pid}
        pids |= {pid for _, pid in self.pool.map(work, ["a", "b"]) + self.spawned.map(work, ["c"])}
        [text] = self.spawned.map(str.upper, [" ".join(map(str, pids))])
        return [Label(label=text) for _ in items]


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


class Anything(BaseModel):
    value: Any = None
    data: bytes = b""


#: What no JSON holds, and what is too large or too deep.
ODD: dict[str, Any] = {
    "huge": 10**40,
    "surrogate": "\ud800",
    "nan": [0.5, float("nan")],
    "infinite": {"a": float("-inf")},
    "object": object(),
    "key": {"\ud800": 1},
    "deep": nested(150),
    "deeper": nested(400),
    "large": "a" * 3_000_000,
}


class Text2(Text):
    @field_validator("text")
    @classmethod
    def _is_known(cls, text: str) -> str:
        return dict[str, str]()["password"] if text == "validator" else text


class Hostile(Handler):
    """Gives what cannot be stored, raises what is no Exception, and asks for impossible units."""

    Input = Text2
    Output = Anything

    def units(self, item: Any) -> Any:
        return {"many": 10**18, "negative": -5, "no number": float("nan"), "no units": "password"}.get(item.text, 1)

    def predict(self, items: list[Any]) -> list[Any]:
        texts = [item.text for item in items]
        if "leave" in texts:
            raise GeneratorExit("password")
        if "interrupt" in texts:
            raise KeyboardInterrupt("password")
        if "unavailable" in texts:
            raise Unavailable("the database is away")
        errors: dict[str, Any] = {"error": InvalidInput("\ud800"), "system": SystemExit("password")}
        bytes_of = {"bytes": {"data": b"\xff\x00"}}
        return [errors.get(text) or bytes_of.get(text) or {"value": ODD.get(text)} for text in texts]


class Short(Sentiment):
    """Gives an output too few."""

    def predict(self, items: list[Text]) -> list[Any]:
        return super().predict(items)[1:]


class NoPredict(Handler):
    Input = Text
    Output = Label


class Hoarder(Sentiment):
    """Prints, logs, and keeps 50 MB more with each item; gives the number of its process."""

    Input = Bare  # type: ignore[assignment]
    max_batch = 1
    max_memory_mb = 900

    def setup(self, core: Any) -> None:
        self.kept: list[bytes] = []

    def judge(self, text: str) -> dict[str, Any]:
        self.kept.append(b"a" * 50_000_000)
        print("keeps", len(self.kept))  # noqa: T201  # what it prints is logged
        logging.getLogger("shop").warning("logged %s", text)
        return {"label": str(os.getpid())}


class Greedy(Sentiment):
    max_memory_mb = 0


class Broken(Sentiment):
    Input = Bare  # type: ignore[assignment]

    def setup(self, core: Any) -> None:
        raise FileNotFoundError(str(Path(core.folder) / "weights"))


class NoHandler:
    pass


class NoSchema(Sentiment):
    class Input(BaseModel, arbitrary_types_allowed=True):
        made: NoHandler


class WithId(Sentiment):
    class Input(BaseModel):
        id: str
