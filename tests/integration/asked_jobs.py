"""Jobs and batches of every kind, handed in over HTTP, with what is expected of each."""

from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx2
import orjson

NDJSON = "application/x-ndjson"

numbers = count()


@dataclass(frozen=True)
class AskedJob:
    """A job that was handed in, and the number of its items."""

    kind: str
    request: httpx2.Request
    id: str
    items: int


class Asker:
    """Hands in jobs and batches, and keeps the jobs for the checks."""

    def __init__(self, api: httpx2.Client, name: str, hook_url: str) -> None:
        self.api = api
        self.label = f"{name}-{next(numbers)}"
        self.hook_url = hook_url
        self.jobs: list[AskedJob] = []

    def each_kind(self) -> None:
        """Hand in one job of each kind."""
        self.job("a lone question", {"question": "How many?", "context": "There are 3."})
        self.job("a small urgent job with a deadline", items(6) | {"priority": "high", "expires_in_s": 3600})
        self.job("a larger job", items(60) | {"priority": "low"})
        shared = [{"id": f"n{n}", "question": "How many?", "context_id": "c"} for n in range(20)]
        self.job("a job with a shared passage", {"items": shared, "contexts": {"c": "There are 3."}})
        self.webhook("a job with a webhook", "job.running", "job.completed")
        self.job("a job with an idempotency key", items(3), key=f"{self.label}-json")
        self.job("a job with a name", items(3), name=f"{self.label}-name")
        self.lines("a job of lines with an idempotency key", 40, key=f"{self.label}-lines")

    def job(self, kind: str, body: dict[str, Any], *, key: str = "", name: str | None = None) -> AskedJob:
        """Hand in a job whose items are in its body."""
        content = orjson.dumps(body | {"metadata": {"kind": kind}})
        method, path = ("PUT", f"/v1/jobs/{name}") if name else ("POST", "/v1/jobs")
        return self._add(kind, method, path, content, "application/json", key, len(body.get("items", [body])))

    def webhook(self, kind: str, *events: str) -> AskedJob:
        """Hand in a job whose events are posted to the receiver."""
        return self.job(kind, items(2) | {"webhook": {"url": self.hook_url, "events": events}})

    def lines(self, kind: str, total: int, *, key: str = "") -> AskedJob:
        """Hand in a job of lines."""
        head = {"metadata": {"kind": kind}}
        content = b"".join(orjson.dumps(each) + b"\n" for each in [head, *items(total)["items"]])
        return self._add(kind, "POST", "/v1/jobs", content, NDJSON, key, total)

    def batch(self, total: int) -> str:
        """Hand in a file to be answered line by line; return the batch's id."""
        lines = [
            {"custom_id": f"c{n}", "method": "POST", "url": "/v1/answers", "body": item}
            for n, item in enumerate(items(total)["items"])
        ]
        content = b"".join(orjson.dumps(line) + b"\n" for line in lines)
        file = self.api.post("/v1/files", files={"file": ("in.jsonl", content)}, data={"purpose": "batch"})
        assert file.status_code == 200, file.text
        request = {"input_file_id": file.json()["id"], "endpoint": "/v1/answers", "completion_window": "24h"}
        return self._send("a batch", self.api.build_request("POST", "/v1/batches", json=request))

    def _send(self, kind: str, request: httpx2.Request) -> str:
        response = self.api.send(request)
        assert response.status_code in (200, 202), f"{kind}: refused: {response.text}"
        return str(response.json()["id"])

    def _add(self, kind: str, method: str, path: str, content: bytes, form: str, key: str, total: int) -> AskedJob:
        headers = {"Content-Type": form} | ({"Idempotency-Key": key} if key else {})
        request = self.api.build_request(method, path, content=content, headers=headers)
        job = AskedJob(kind, request, self._send(kind, request), total)
        self.jobs.append(job)
        return job


def items(total: int) -> dict[str, Any]:
    """Return that many items as a part of a job's body."""
    return {
        "items": [
            {"id": f"n{n}", "question": "What is the number?", "context": f"The number is {n}. The rest is noise."}
            for n in range(total)
        ]
    }
