"""The ways to submit to Corelane: a single item, a job, lines or a file; and to learn of the end: by waiting,
polling, events or webhooks.

Every job has an idempotency key, and each item has its place as its id, so lost and doubled results are noticed.
"""

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic as now
from typing import Any

import orjson

from corelane.errors import InvalidInput, SignatureRefused
from corelane.plugins.lab.http import JSON_TYPE, Response, read_head
from corelane.plugins.lab.senders import Failed, HttpSender, Manner, Reply, Target, taken
from corelane.plugins.lab.workload import BenchItem, Given, bench_of

#: Longest that one request asks the service to wait, in seconds: proxies drop a connection silent for 60 s.
LONGEST_WAIT_S = 55

#: Results in a page.
PAGE_ITEMS = 500

Called = asyncio.Future[tuple[dict[str, Any], float]]

NDJSON_TYPE = {"Content-Type": "application/x-ndjson"}

FINAL_JOB = ("succeeded", "failed", "canceled", "expired")
FINAL_BATCH = ("completed", "failed", "expired", "cancelled")


class Callbacks:
    """The expected webhooks, each with its own address on loopback."""

    def __init__(self, secret: str | None) -> None:
        if secret is None:
            raise InvalidInput(
                "--hearing webhook checks signatures: set CORELANE_WEBHOOK_SECRET to the service's secret. The service "
                "must allow this machine too: CORELANE_WEBHOOK_ALLOWED_NETWORKS=127.0.0.0/8"
            )
        # Imported before the run, which only sends; and only here, as the import slows the start of other processes.
        from corelane.client.webhooks import verify_webhook

        self._verify, self._secret = verify_webhook, secret
        self._expected: dict[str, Called] = {}
        self._server: asyncio.Server | None = None
        self._port = 0

    async def open(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    def expect(self, number: int) -> tuple[str, Called]:
        """Return an address, and a future with the event posted there and the time of its arrival."""
        self._expected[f"/{number}"] = called = asyncio.get_running_loop().create_future()
        return f"http://127.0.0.1:{self._port}/{number}", called

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError):
            while True:
                first, headers = await read_head(reader)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                status = self._take(self._expected.pop(first.split(" ")[1], None), headers, body)
                writer.write(f"HTTP/1.1 {status} -\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    def _take(self, called: Called | None, headers: dict[str, str], body: bytes) -> int:
        try:
            event = self._verify(body, headers, self._secret)
        except SignatureRefused as error:
            if called is not None and not called.done():
                called.set_exception(Failed(error.code, error.detail))
            return 401
        if called is not None and not called.done():
            called.set_result((event, now()))
        return 204


class CorelaneSender(HttpSender):
    """Sends requests to Corelane in any of its ways."""

    def __init__(self, target: Target, manner: Manner) -> None:
        super().__init__(target, manner)
        if manner.way == "batch" and manner.hearing != "poll":
            raise InvalidInput("a batch is heard by polling alone: --hearing poll")
        self._bench = bench_of(target.task)
        if manner.way == "batch":
            target.batch_line(0, BenchItem({}))
        self._callbacks = Callbacks(target.webhook_secret) if manner.hearing == "webhook" else None

    async def open(self, connections: int) -> None:
        """Connect in advance, and listen for webhooks if they are used."""
        await super().open(connections)
        if self._callbacks is not None:
            await self._callbacks.open()

    async def close(self) -> None:
        """Close connections, and stop listening."""
        await super().close()
        if self._callbacks is not None:
            await self._callbacks.close()

    async def ask(self, reply: Reply, index: int, items: Sequence[BenchItem]) -> None:
        """Submit the request, wait for its end and fetch its results."""
        if self.manner.way == "batch":
            await self._ask_batch(reply, items)
        elif self.manner.way == "item" and self.manner.hearing == "wait" and self._bench.path is not None:
            await self._ask_one(reply, items[0], self._bench.path)
        elif self._callbacks is not None:
            await self._ask_called(reply, index, items, self._callbacks)
        else:
            job = await self._submit(reply, items)
            await self._finish(reply, await self._hear(reply, job))

    async def _ask_one(self, reply: Reply, item: BenchItem, path: str) -> None:
        body = {**self.target.head, **item.fields}
        waits = JSON_TYPE | {"Prefer": f"wait={LONGEST_WAIT_S}"}
        response = self.began(reply, await self.http.exchange("POST", path, orjson.dumps(body), waits))
        reply.job = response.headers.get("location", "").rpartition("/")[2] or None
        if response.status == 202:
            await self._finish(reply, await self._wait(response.json()))
            return
        reply.ended_s = now()
        reply.results = self._read([response.json() | {"index": 0}])

    async def _ask_called(self, reply: Reply, index: int, items: Sequence[BenchItem], callbacks: Callbacks) -> None:
        url, called = callbacks.expect(index)
        job = await self._submit(reply, items, {"webhook": {"url": url}})
        event, reply.ended_s = await called
        await self._finish(reply, job | event["data"])

    async def _submit(
        self, reply: Reply, items: Sequence[BenchItem], extra: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        head = self.target.head | dict(extra or {})
        lines = [{"id": str(place), **each.fields} for place, each in enumerate(items)]
        if self.manner.way == "lines":
            body, kind = b"\n".join(orjson.dumps(part) for part in [head, *lines]) + b"\n", NDJSON_TYPE
        else:
            body, kind = orjson.dumps(head | {"items": lines}), JSON_TYPE
        waits = {"Prefer": f"wait={LONGEST_WAIT_S}"} if self.manner.hearing == "wait" else {}
        headers = kind | waits | {"Idempotency-Key": uuid.uuid4().hex}
        job = self.began(reply, await self.http.exchange("POST", "/v1/jobs", body, headers)).json()
        reply.job = str(job["id"])
        if self.manner.hearing != "wait":
            reply.accepted_s = now()
        return dict(job)

    async def _hear(self, reply: Reply, job: dict[str, Any]) -> dict[str, Any]:
        match self.manner.hearing:
            case "poll":
                return await self._poll(reply, job)
            case "sse":
                return await self._follow(reply, job)
            case _:
                return await self._wait(job)

    async def _wait(self, job: dict[str, Any]) -> dict[str, Any]:
        while job["status"] not in FINAL_JOB:
            job = await self._get(f"/v1/jobs/{job['id']}?wait={LONGEST_WAIT_S}")
        return job

    async def _poll(self, reply: Reply, job: dict[str, Any]) -> dict[str, Any]:
        while job["status"] not in FINAL_JOB:
            await asyncio.sleep(self.manner.poll_s)
            job = await self._get(f"/v1/jobs/{job['id']}")
            note_first(reply, job["counts"]["succeeded"])
        return job

    async def _follow(self, reply: Reply, job: dict[str, Any]) -> dict[str, Any]:
        if job["status"] in FINAL_JOB:
            return job
        kind, accept = b"", {"Accept": "text/event-stream"}
        async for line in self.http.lines(f"/v1/jobs/{job['id']}/events", accept):
            if line.startswith(b"event:"):
                kind = line[6:].strip()
            elif line.startswith(b"data:") and kind == b"job.progress":
                note_first(reply, orjson.loads(line[5:])["counts"]["succeeded"])
            elif line.startswith(b"data:") and kind == b"job.completed":
                return dict(orjson.loads(line[5:]))
        return await self._wait(job)

    async def _finish(self, reply: Reply, job: dict[str, Any]) -> None:
        """Fetch the results of a final job that does not include them, and note the time."""
        results = job.get("results")
        heard_s = reply.ended_s or now()
        if results is None:
            results = [result async for result in self._pages(str(job["id"]))]
            heard_s = now()
        reply.ended_s = heard_s
        if job["status"] != "succeeded":
            error = job.get("error") or {}
            raise Failed(error.get("code", f"job_{job['status']}"), error.get("detail", f"the job {job['status']}"))
        reply.results = self._read(results)
        if [each.place for each in reply.results] != sorted(each.place for each in reply.results):
            raise Failed("out_of_order", "the results are not in the order of the items")

    async def _pages(self, job: str) -> Any:
        after = ""
        while True:
            page = await self._get(f"/v1/jobs/{job}/results?limit={PAGE_ITEMS}{after}")
            for result in page["data"]:
                yield result
            if not page["has_more"]:
                return
            after = f"&after={page['next']}"

    async def _ask_batch(self, reply: Reply, items: Sequence[BenchItem]) -> None:
        content = b"".join(self.target.batch_line(place, each) for place, each in enumerate(items))
        boundary = uuid.uuid4().hex
        form = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        upload = await self.http.exchange("POST", "/v1/files", _form(boundary, content), form)
        asked = {"input_file_id": self.began(reply, upload).json()["id"], "completion_window": "24h"}
        body = orjson.dumps(asked | {"endpoint": self._bench.path})
        batch = taken(await self.http.exchange("POST", "/v1/batches", body, JSON_TYPE)).json()
        reply.job, reply.accepted_s = str(batch["id"]), now()
        while batch["status"] not in FINAL_BATCH:
            await asyncio.sleep(self.manner.poll_s)
            batch = await self._get(f"/v1/batches/{reply.job}")
            note_first(reply, batch["request_counts"]["completed"])
        if batch["status"] != "completed" or batch["request_counts"]["failed"]:
            reply.ended_s = now()
            raise Failed(f"batch_{batch['status']}", f"{batch['request_counts']['failed']} lines failed")
        output = await self._exchange(f"/v1/files/{batch['output_file_id']}/content")
        reply.ended_s = now()
        lines = [orjson.loads(line) for line in output.body.splitlines()]
        reply.results = self._read(line["response"]["body"] | {"id": line["custom_id"]} for line in lines)

    def _read(self, results: Iterable[Mapping[str, Any]]) -> list[Given]:
        """Return results in the form in which they are compared; raise Failed for an item that failed."""
        found = []
        for result in results:
            if result.get("status") != "succeeded":
                error = result.get("error") or {}
                raise Failed(error.get("code", f"item_{result.get('status')}"), error.get("detail", "an item failed"))
            place = int(result["id"]) if result.get("id") is not None else int(result["index"])
            found.append(Given(place, self._bench.output(result)))
        return found

    async def _get(self, path: str) -> dict[str, Any]:
        return dict((await self._exchange(path)).json())

    async def _exchange(self, path: str) -> Response:
        return taken(await self.http.exchange("GET", path))


def note_first(reply: Reply, answered: int) -> None:
    """Note the time when results are first available."""
    if answered and reply.first_s is None:
        reply.first_s = now()


def _form(boundary: str, content: bytes) -> bytes:
    start = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{boundary}\r\n'
        'Content-Disposition: form-data; name="file"; filename="bench.jsonl"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    )
    return start.encode() + content + f"\r\n--{boundary}--\r\n".encode()
