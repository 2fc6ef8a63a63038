"""Jobs and batches of every kind, handed in over HTTP, with what is expected of each; for the upgrade test.

Nothing here knows the product's code: both versions are asked by the public API alone.
"""

from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import httpx2
import orjson

NDJSON = "application/x-ndjson"

#: The kind of job that waits in a list of its own, as it is more than one slice.
LARGER = "a larger job"

#: A caller waits for an answer this long at most, in seconds.
ANSWER_S = 40

numbers = count()


@dataclass(frozen=True)
class AskedJob:
    """A job that was handed in, and what is expected of it."""

    kind: str
    version: str
    request: httpx2.Request
    id: str
    item_ids: list[str | None]
    events: tuple[str, ...] = ()
    name: str | None = None
    labels: tuple[str, ...] = ()
    status: str = "succeeded"

    def __str__(self) -> str:
        return f"{self.kind} ({self.id}, taken in by the {self.version} API)"


@dataclass(frozen=True)
class AskedBatch:
    """A batch of lines that was handed in."""

    kind: str
    version: str
    id: str
    custom_ids: list[str]

    def __str__(self) -> str:
        return f"{self.kind} ({self.id}, taken in by the {self.version} API)"


class Asker:
    """Hands in jobs and batches at the API of one version, and keeps them, and what went wrong, for the checks."""

    def __init__(self, api: httpx2.Client, version: str, hook_url: str) -> None:
        self.api = api
        self.version = version
        self.label = f"{version}-{next(numbers)}"
        self.hook_url = hook_url
        self.jobs: list[AskedJob] = []
        self.batches: list[AskedBatch] = []
        self.problems: list[str] = []

    def each_kind(self) -> None:
        """Hand in one job of each kind."""
        self.job("a lone question", {"question": "How many?", "context": "There are 3."})
        self.job("a small urgent job with a deadline", items(6) | {"priority": "high", "expires_in_s": 3600})
        self.job(LARGER, items(60) | {"priority": "low"})
        shared = [{"id": f"n{n}", "question": "How many?", "context_id": "c"} for n in range(20)]
        self.job("a job with a shared passage", {"items": shared, "contexts": {"c": "There are 3."}})
        self.webhook("a job with a webhook", "job.running", "job.completed")
        self.job("a job with an idempotency key", items(3), key=f"{self.label}-json")
        self.job("a job with a name and labels", items(3), name=f"{self.label}-name")
        self.lines("a job of lines with an idempotency key", 40, key=f"{self.label}-lines")

    def job(self, kind: str, body: dict[str, Any], *, key: str = "", name: str | None = None) -> AskedJob:
        """Hand in a job whose items are in its body."""
        labels = (self.label, "named") if name else (self.label,)
        content = orjson.dumps(body | {"labels": labels, "metadata": {"kind": kind}})
        method, path = ("PUT", f"/v1/jobs/{name}") if name else ("POST", "/v1/jobs")
        request = self._request(method, path, content, "application/json", key)
        item_ids = [item.get("id") for item in body.get("items", [body])]
        events = tuple(body.get("webhook", {}).get("events", ()))
        return self._add(
            AskedJob(kind, self.version, request, self._send(kind, request), item_ids, events, name, labels)
        )

    def webhook(self, kind: str, *events: str) -> AskedJob:
        """Hand in a job whose events are posted to the receiver."""
        return self.job(kind, items(2) | {"webhook": {"url": self.hook_url, "events": events}})

    def lines(self, kind: str, total: int, *, key: str = "") -> AskedJob:
        """Hand in a job of lines."""
        head, given = {"labels": [self.label], "metadata": {"kind": kind}}, items(total)["items"]
        content = b"".join(orjson.dumps(each) + b"\n" for each in [head, *given])
        request = self._request("POST", "/v1/jobs", content, NDJSON, key)
        item_ids = [item["id"] for item in given]
        return self._add(
            AskedJob(kind, self.version, request, self._send(kind, request), item_ids, labels=(self.label,))
        )

    def retry(self, job: AskedJob) -> AskedJob:
        """Have a job's unanswered items asked again."""
        request = self._request("POST", f"/v1/jobs/{job.id}/retry", b"", "application/json")
        return self._add(replace(job, version=self.version, id=self._send(job.kind, request), status="succeeded"))

    def batch(self, kind: str, total: int) -> AskedBatch:
        """Hand in a file to be answered line by line."""
        custom_ids = [f"c{n}" for n in range(total)]
        lines = [
            {"custom_id": custom_id, "method": "POST", "url": "/v1/answers", "body": item}
            for custom_id, item in zip(custom_ids, items(total)["items"], strict=True)
        ]
        content = b"".join(orjson.dumps(line) + b"\n" for line in lines)
        file = self.api.post("/v1/files", files={"file": ("in.jsonl", content)}, data={"purpose": "batch"})
        assert file.status_code == 200, f"{kind}: the {self.version} API took no file: {file.text}"
        request = {"input_file_id": file.json()["id"], "endpoint": "/v1/answers", "completion_window": "24h"}
        batch = self._send(kind, self.api.build_request("POST", "/v1/batches", json=request))
        self.batches.append(AskedBatch(kind, self.version, batch, custom_ids))
        return self.batches[-1]

    def answer(self) -> None:
        """Ask one question and wait for its answer in the same request."""
        body = {"question": "How many?", "context": "There are 3."}
        try:
            answered = self.api.post("/v1/answers", json=body, params={"wait": 60}, timeout=ANSWER_S)
        except httpx2.ReadTimeout:
            self.problems.append(f"a caller of the {self.version} API who waits is not told of the answer")
            return
        if (answered.status_code, answered.json().get("status")) != (200, "succeeded"):
            self.problems.append(f"a caller of the {self.version} API gets no answer: {answered.text}")

    def _request(self, method: str, path: str, content: bytes, form: str, key: str = "") -> httpx2.Request:
        headers = {"Content-Type": form} | ({"Idempotency-Key": key} if key else {})
        return self.api.build_request(method, path, content=content, headers=headers)

    def _send(self, kind: str, request: httpx2.Request) -> str:
        response = self.api.send(request)
        assert response.status_code in (200, 202), f"{kind}: refused by the {self.version} API: {response.text}"
        return str(response.json()["id"])

    def _add(self, job: AskedJob) -> AskedJob:
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
