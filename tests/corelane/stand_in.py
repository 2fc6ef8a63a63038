"""A service of the same HTTP surface behind a real socket: answers each item with the first word of its context.

Questions that begin with "Nothing" have no answer, those with "Broken" fail. What goes wrong is set by attributes.
"""

import re
import time
from collections import deque
from typing import Any

import orjson
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from corelane.domain.ids import new_job_id
from corelane.domain.jobs import DEFAULT_TASK
from corelane.tasks.results import failed_result, unanswered_result


class StandIn:
    """The service's state. ``refusals`` are sent, one each, instead of the next answers."""

    def __init__(self, server: HTTPServer) -> None:
        self.server = server
        self.url = server.url_for("").rstrip("/")
        self.jobs: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.idempotency_keys: list[str | None] = []
        self.refusals: deque[Response] = deque()
        self.delays: deque[float] = deque()
        self.canceled: list[str] = []
        self.by_key: dict[str, str] = {}
        self.max_items = 10_000
        self.bounds_lines = True
        self.answers_at_once = True
        self.status = "running"
        self.waiting_for: str | None = None
        self.is_away = False
        self.max_open = 1_000
        self.polls_until_final = 1
        self.wrong_offsets = False
        self.failed = 0
        self.event_streams: deque[int] = deque()
        self.most_open = 0
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, str] = {}
        self.placed: dict[str, Any] = {}
        self.models: list[dict[str, Any]] = [{"id": "one"}]
        self.overview: dict[str, Any] = {}
        server.expect_request(re.compile(".*")).respond_with_handler(self.handle)

    def handle(self, request: Request) -> Response:
        self.requests.append(f"{request.method} {request.full_path.rstrip('?')}")
        self.keys.append(request.headers.get("Authorization"))
        if request.method == "POST":
            self.idempotency_keys.append(request.headers.get("Idempotency-Key"))
        if self.delays:
            time.sleep(self.delays.popleft())
        if self.is_away and request.method == "GET":
            return Response("<html>bad gateway", 502)
        if self.refusals:
            return self.refusals.popleft()
        if request.path == "/v1/jobs" or (request.path.startswith("/v1/jobs/") and request.method == "PUT"):
            return self.listed(request) if request.method == "GET" else self.submit(request)
        if match := re.fullmatch(r"/v1/jobs/(\w+)(/results|/cancel|/retry|/events)?", request.path):
            return self.job(request, match[1], match[2])
        if match := re.fullmatch(r"/v1/files(?:/(\w+)(/content)?)?", request.path):
            return self.file(request, match[1], bool(match[2]))
        if match := re.fullmatch(r"/v1/batches(?:/(\w+)(/cancel)?)?", request.path):
            return self.batch(request, match[1], bool(match[2]))
        if re.fullmatch(r"/v1/jobs/\w+/deliveries", request.path):
            return answer({"object": "list", "data": [DELIVERY]})
        if re.fullmatch(r"/v1/deliveries/\w+/redeliver", request.path):
            return answer(DELIVERY | {"state": "pending"}, 202)
        if request.path == "/v1/cores":
            return answer({"object": "list", "data": [self.placed or {"id": "one"}]})
        if request.path == "/v1/overview":
            return answer(self.overview)
        if request.path == "/v1/models":
            return answer({"object": "list", "data": self.models})
        if request.path.startswith("/v1/cores/all/models"):
            return answer(self.place(request), 202)
        if request.path.startswith("/v1/aliases"):
            means = {"object": "alias", "alias": "blue", "weights": {"words@1": 1.0}, "is_set": True}
            return answer({"object": "list", "data": [means]} if request.path == "/v1/aliases" else means)
        return answer({"status": "ok"})

    def submit(self, request: Request) -> Response:
        body = read_job(request)
        self.bodies.append(body)
        is_lines = request.content_type == "application/x-ndjson"
        if len(body["items"]) > self.max_items and (self.bounds_lines or not is_lines):
            return problem(413, "too_large", f"at most {self.max_items} items are taken")
        if self.open_jobs() >= self.max_open:
            return problem(429, "overloaded", "too much work", retry_after="0")
        key = request.headers.get("Idempotency-Key", new_job_id())
        if key in self.by_key:
            return answer(self.describe(self.by_key[key]), 202)
        job_id = self.by_key[key] = new_job_id()
        waits = self.answers_at_once and "wait=" in request.headers.get("Prefer", "")
        self.jobs[job_id] = {"body": body, "polls": 0 if waits else self.polls_until_final, "read": 0, "dropped": 0}
        self.most_open = max(self.most_open, self.open_jobs())
        return answer(self.describe(job_id), 200 if waits else 202)

    def listed(self, request: Request) -> Response:
        """Jobs, newest first; the cursor counts them."""
        at, limit = int(request.args.get("after", 0)), int(request.args["limit"])
        found = [self.describe(job_id) | {"results": None} for job_id in [*self.jobs][::-1][at : at + limit]]
        more = at + limit < len(self.jobs)
        ends = {"first_id": None, "last_id": None}
        return answer(
            {"object": "list", "data": found, "has_more": more, "next": str(at + limit) if more else None} | ends
        )

    def file(self, request: Request, file_id: str | None, content: bool) -> Response:
        """Files, newest first; the cursor is the last one's id."""
        if file_id is None and request.method == "GET":
            return page_after(request, [describe_file(name, self.files[name]) for name in [*self.files][::-1]])
        if file_id is None:
            file_id = f"file_{len(self.files)}"
            self.files[file_id] = request.files["file"].read()
        if file_id not in self.files:
            return problem(404, "not_found", f"there is no file {file_id}")
        if content:
            return Response(self.files[file_id], content_type="application/jsonl")
        described = describe_file(file_id, self.files[file_id])
        if request.method == "DELETE":
            del self.files[file_id]
        return answer(described)

    def batch(self, request: Request, batch_id: str | None, cancel: bool) -> Response:
        """Batches, newest first; one that was canceled says so."""
        if batch_id is None and request.method == "GET":
            return page_after(request, [describe_batch(*each) for each in [*self.batches.items()][::-1]])
        if batch_id is None:
            batch_id = f"batch_{len(self.batches)}"
            self.batches[batch_id] = "in_progress"
        if batch_id not in self.batches:
            return problem(404, "not_found", f"there is no batch {batch_id}")
        if cancel:
            self.batches[batch_id] = "cancelled"
        return answer(describe_batch(batch_id, self.batches[batch_id]))

    def place(self, request: Request) -> dict[str, Any]:
        """Load a version on one core at once, or unload it."""
        held = {"version": "words@1", "state": "ready", "dtype": "fp32", "bytes": 1, "buckets": ["1x8"]}
        held |= {"reason": "", "manifest_sha256": "0", "asked_at": "2026-01-01T00:00:00.000Z"}
        self.placed = {
            "core": "testhost/0",
            "state": "idle",
            "busy_ratio": 0.5,
            "memory_bytes": 10**6,
            "items": 7,
            "models": [] if request.method == "DELETE" else [held],
        }
        return {
            "object": "placement",
            "version": "words@1",
            "scope": "all",
            "cores": [],
            "without": [],
            "asked_at": held["asked_at"],
        }

    def events(self, request: Request, job_id: str) -> Response:
        """Ten events and the last; every stream but the last breaks off in the middle of an event."""
        job = self.describe(job_id)
        progress = {"job": job_id, "at": job["created_at"], "counts": job["counts"]}
        told = [("job.running", progress), ("job.of_tomorrow", {})] + [("job.progress", progress)] * 8
        told.append(("job.completed", job | {"status": "succeeded"}))
        at = int(request.headers.get("Last-Event-ID", "0-0").split("-")[0])
        if at >= len(told):
            return Response(status=204)
        whole = [
            f"id: {n + 1}-0\nevent: {kind}\ndata: {orjson.dumps(data).decode()}\n\n"
            for n, (kind, data) in enumerate(told)
        ][at:]
        length = self.event_streams.popleft() if self.event_streams else len(whole)
        text = ": ping\n\nretry: 10\n\n" + "".join(whole[:length]) + "".join(whole[length : length + 1])[:20]
        return Response(text, content_type="text/event-stream")

    def open_jobs(self) -> int:
        """Jobs whose results were not all fetched yet."""
        return sum(job["read"] < len(job["body"]["items"]) for job in self.jobs.values())

    def job(self, request: Request, job_id: str, action: str | None) -> Response:
        if job_id not in self.jobs:
            return problem(404, "not_found", f"there is no job {job_id}")
        if action == "/cancel":
            self.canceled.append(job_id)
            return answer(self.describe(job_id))
        if action == "/events":
            return self.events(request, job_id)
        if action == "/retry":
            return answer(self.describe(job_id), 202)
        job = self.jobs[job_id]
        if request.method == "DELETE" and action is None:
            return Response(status=204)
        if request.method == "DELETE":
            job["dropped"] = max(job["dropped"], int(request.args["before"]))
            return answer(self.describe(job_id))
        if action == "/results":
            after = int(request.args.get("after", job["dropped"]))
            if after < job["dropped"]:
                return problem(410, "results_dropped", f"the results before item {job['dropped']} were dropped")
            return answer(self.page(job, after, int(request.args.get("limit", 100))))
        job["polls"] = max(0, job["polls"] - 1)
        return answer(self.describe(job_id))

    def describe(self, job_id: str) -> dict[str, Any]:
        job = self.jobs[job_id]
        items = job["body"]["items"]
        is_final = job["polls"] == 0
        status = "canceled" if job_id in self.canceled else "succeeded" if is_final else self.status
        return {
            "object": "job",
            "id": job_id,
            "status": status,
            "model": "words@1",
            "waiting_for": self.waiting_for,
            "counts": {"total": len(items), "succeeded": len(items) - self.failed if is_final else len(items) // 2},
            "usage": None,
            "created_at": "2026-01-01T00:00:00.000Z",
            "results_from": job["dropped"],
            "urls": {"self": f"/v1/jobs/{job_id}"}
            | dict.fromkeys(("results", "cancel", "events", "deliveries", "retry"), ""),
            "options": {"top_k": 1, "an_option_of_tomorrow": 1},
            "results": self.results(job) if is_final and len(items) <= 100 else None,
        }

    def page(self, job: dict[str, Any], after: int, limit: int) -> dict[str, Any]:
        """Return a final job's results; of a running one only the first half."""
        total = len(job["body"]["items"])
        end = min(after + limit, total if job["polls"] == 0 else max(after, total // 2))
        job["read"] = end
        return {
            "object": "list",
            "data": self.results(job)[after:end],
            "has_more": end < total,
            "next": str(end) if end < total else None,
        }

    def results(self, job: dict[str, Any]) -> list[dict[str, Any]]:
        contexts = job["body"].get("contexts", {})
        return [self.result(index, item, contexts) for index, item in enumerate(job["body"]["items"])]

    def result(self, index: int, item: dict[str, Any], contexts: dict[str, str]) -> dict[str, Any]:
        if item["question"].startswith("Broken"):
            return failed_result(DEFAULT_TASK, index, item.get("id"), "run_failed", "it broke")
        found = unanswered_result(DEFAULT_TASK, index, item.get("id"), "succeeded")  # type: ignore[arg-type]
        if item["question"].startswith("Nothing"):
            return found | {"no_answer_score": 0.75, "windows": 1}
        context = item["context"] if "context" in item else contexts[item["context_id"]]
        word = context.split()[0]
        start = context.index(word) + self.wrong_offsets
        text = {"text": word, "start": start, "end": start + len(word), "score": 0.5}
        return found | {"answer": text, "answers": [text], "no_answer_score": 0.25, "windows": 1}


def page_after(request: Request, objects: list[dict[str, Any]]) -> Response:
    """Return a page of a list in OpenAI's shape."""
    at = next((i + 1 for i, each in enumerate(objects) if each["id"] == request.args.get("after")), 0)
    end = at + int(request.args["limit"])
    data, ends = objects[at:end], {"first_id": None, "last_id": None}
    if data:
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]}
    return answer({"object": "list", "data": data, "has_more": end < len(objects)} | ends)


def describe_file(file_id: str, content: bytes) -> dict[str, Any]:
    told = {"id": file_id, "object": "file", "bytes": len(content), "created_at": 1_767_225_600}
    return told | {"filename": "questions[1].jsonl", "purpose": "batch"}


#: What batches were written to; none by default.
OUTPUT_ID: str | None = None


def describe_batch(batch_id: str, status: str) -> dict[str, Any]:
    return {
        "id": batch_id,
        "object": "batch",
        "endpoint": "/v1/answers",
        "input_file_id": "file_0",
        "completion_window": "24h",
        "status": status,
        "created_at": 1_767_225_600,
        "expires_at": 1_767_312_000,
        "errors": {"data": [{"code": "x", "message": "it is no [JSON]", "line": 7}]},
        "output_file_id": OUTPUT_ID,
        "request_counts": {"total": 3, "completed": 1, "failed": 1},
    }


#: A webhook that was tried once, in vain.
DELIVERY = {
    "object": "delivery",
    "id": "evt_1_completed",
    "event": "job.completed",
    "subject": "job_1",
    "url": "https://example.com/[hook]",
    "state": "dead",
    "created_at": "2026-01-01T00:00:00.000Z",
    "ended_at": None,
    "next_attempt_at": None,
    "attempt_count": 1,
    "attempts": [{"at": "2026-01-01T00:00:00.000Z", "status": 500, "duration_ms": 3, "error": None, "snippet": None}],
    "urls": {"self": "/v1/deliveries/evt_1_completed", "redeliver": "/v1/deliveries/evt_1_completed/redeliver"},
}


def read_job(request: Request) -> dict[str, Any]:
    """Return a job's body; one sent as lines as its head and its items."""
    if request.content_type != "application/x-ndjson":
        return dict(orjson.loads(request.data))
    head, *items = [orjson.loads(line) for line in request.data.splitlines()]
    return head | {"items": items}


def answer(body: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, content_type="application/json")


def problem(status: int, code: str, detail: str, retry_after: str | None = None) -> Response:
    body = {"type": f"urn:{code}", "title": code, "status": status, "detail": detail, "code": code}
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return Response(orjson.dumps(body), status, headers, content_type="application/problem+json")


ITEM = {"id": "a", "question": "Who?", "context": "Ada wrote it."}


def many(count: int) -> list[dict[str, str]]:
    return [{"id": str(index), "question": "Who?", "context": f"word{index} is here"} for index in range(count)]
