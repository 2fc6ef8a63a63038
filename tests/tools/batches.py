"""Batches as OpenAI's own client sends and follows them."""

from typing import Any

import orjson
from openai import OpenAI

from tests.tools.fleet import Fleet
from tests.tools.waiting import eventually

FINAL = ("completed", "failed", "expired", "cancelled")


def line(custom_id: str, question: str, context: str, **body: Any) -> bytes:
    body = {"question": question, "context": context} | body
    return orjson.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/answers", "body": body}) + b"\n"


def numbers(first: int, count: int, **body: Any) -> list[bytes]:
    context = "The number is {}. The rest is noise."
    return [line(f"n{n}", "What is the number?", context.format(n), **body) for n in range(first, first + count)]


def client_of(fleet: Fleet, key: str = "batches") -> OpenAI:
    return OpenAI(base_url=f"{fleet.url}/v1", api_key=key, max_retries=0)


def create(client: OpenAI, content: bytes, window: str = "24h", **more: Any) -> Any:
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    given: Any = {"endpoint": "/v1/answers", "completion_window": window} | more
    return client.batches.create(input_file_id=file.id, **given)


def finished(client: OpenAI, batch: str, seconds: float = 60) -> Any:
    eventually(lambda: client.batches.retrieve(batch).status in FINAL, seconds)
    return client.batches.retrieve(batch)


def lines_of(client: OpenAI, file: str | None) -> list[dict[str, Any]]:
    assert file is not None
    return [orjson.loads(each) for each in client.files.content(file).content.splitlines()]
