"""``Client``: the talks performed with blocking calls, for scripts and threads."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

import httpx2

from corelane.client import endpoints
from corelane.client.endpoints import LONGEST_POLL_S, Call, JobFilters, JobParts, job_body
from corelane.client.protocol import Give, Hear, JobEvent, Listen, Pause, Reply, Send, Service, Step, Talk, Wait
from corelane.client.transport import http_options, log_wait, new_key, timeout_of, whole_file
from corelane.client.wire import JobItem, dump_lines
from corelane.domain.batches import Batch, FileObject
from corelane.domain.jobs import Job, LinesHead, Result
from corelane.errors import CorelaneError

Answer = TypeVar("Answer")


class Client:
    """Talks to one service; safe to share between threads. Close it, or use it in a ``with``."""

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        api_key: str | None = None,
        *,
        timeout_s: float = 30.0,
        max_retries: int = 4,
        on_wait: Callable[[Wait], None] = log_wait,
    ) -> None:
        """``timeout_s`` bounds connecting and each silence, on top of any time asked to wait.

        ``on_wait`` is called before each pause after which a call is tried again; if not given, such a pause is a
        warning of the logger ``corelane.client``.
        """
        self.base_url = base_url.rstrip("/")
        self._service = Service(self.base_url, timeout_s, max_retries)
        self._on_wait = on_wait
        self._http = httpx2.Client(**http_options(self.base_url, api_key))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, question: str, context: str, *, model: str = "default", **options: Any) -> Result:
        """Ask one question and wait for its answer, as long as it takes; ``options`` are those of a job."""
        items, parts = [{"question": question, "context": context}], JobParts(model=model, options=options)
        call = endpoints.submit(job_body(items, parts), new_key(), LONGEST_POLL_S)
        return self._perform(self._service.ask(call, endpoints.same_as_lines(call, items, parts)))

    def submit(
        self,
        items: Iterable[JobItem],
        *,
        wait_s: float = 0.0,
        idempotency_key: str | None = None,
        name: str | None = None,
        or_lines: bool = True,
        **parts: Unpack[JobParts],
    ) -> Job:
        """Hand in a job; it is kept once this returns, and final already if it ended within ``wait_s``.

        Sent again while the service is away: by its idempotency key, a new one if none is given, the job is taken in
        once. With a ``name`` of your own it is found by that name too, and is the same job whenever it is handed in
        again, for as long as it is kept. Items name those of ``contexts`` by ``context_id``. ``refuse_if_late`` raises
        ServiceError (409) if the job is not expected to be done within ``expires_in_s``. A job that is too large for
        one request is sent as lines instead, unless ``or_lines`` is false.
        """
        given = list(items)
        body = job_body(given, parts)
        if name is not None:
            call = endpoints.put_job(name, body, wait_s)
        else:
            call = endpoints.submit(body, idempotency_key or new_key(), wait_s)
        lines = endpoints.same_as_lines(call, given, parts) if or_lines else None
        return self._perform(self._service.submit(call, lines))

    def submit_lines(
        self,
        items: Iterable[JobItem],
        head: LinesHead | Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> Job:
        """Hand in a job of any number of items, sent as they come; nothing of it is kept if this raises a refusal.

        Memory stays flat. Items are checked by the service alone, which names a bad one by its line: the head is
        line 1, the first item line 2. Tried once, as an iterator cannot be sent again: with an idempotency key you may
        send the same lines anew.
        """
        return self._call(endpoints.submit_lines(dump_lines(head or {}, items), idempotency_key))

    def get(self, job_id: str, wait_s: float = 0.0) -> Job:
        """A job once it is final, or as it stands after ``wait_s`` (at most 55 s)."""
        return self._call(endpoints.get_job(job_id, wait_s))

    def wait(self, job_id: str, timeout_s: float | None = None) -> Job:
        """A job once it is final, or as it stands after ``timeout_s``: look at its status."""
        return self._perform(self._service.wait(job_id, timeout_s))

    def iter_results(self, job_id: str, *, drop: bool = False) -> Generator[Result, None, None]:
        """Results in item order, from the first that was not dropped; follows a running job to its end.

        With ``drop`` the service forgets each page of results once the caller asks for the one after its last. So a
        caller that has stored a result before it asks for the next loses none, whenever it stops; next time it reads
        the page it stopped in again, and perhaps a few results before that. A job with a ``results_window`` is read to
        its end only so.
        """
        return self._each(self._service.results(job_id, drop))

    def iter_jobs(self, *, limit: int | None = None, **filters: Unpack[JobFilters]) -> Generator[Job, None, None]:
        """Your own jobs that fit all filters, newest first, ``limit`` at most; read page after page as you go."""
        return self._each(self._service.jobs(filters, limit))

    def retry(self, job_id: str) -> Job:
        """Ask again what a final job left unanswered: a new job, the same one however often this is called."""
        return self._call(endpoints.retry(job_id))

    def delete(self, job_id: str) -> None:
        """Have a job and its results forgotten; one that is open is canceled first."""
        self._call(endpoints.delete_job(job_id))

    def iter_events(self, job_id: str, *, after: str | None = None) -> Generator[JobEvent, None, None]:
        """A job's events, from the first or from ``after`` an event's id, to the last, `job.completed`.

        Each comes once and in order: a stream that breaks is taken up after the last event that was read.
        """
        return self._each(self._service.events(job_id, after))

    def drop_results(self, job_id: str, before: int) -> Job:
        """Have the service forget stored results of items before this one; the job's ``results_from`` says how far."""
        return self._call(endpoints.drop_results(job_id, before))

    def cancel(self, job_id: str) -> Job:
        """Cancel what is not answered yet, tried once; changes nothing about a job that is final."""
        return self._call(endpoints.cancel(job_id))

    def batch(
        self,
        path: str | Path,
        *,
        completion_window: str = "24h",
        metadata: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> Batch:
        """Upload a file of questions (a line: `custom_id`, `method`, `url`, `body`), and wait until all is answered.

        ``download_file`` fetches its ``output_file_id`` and ``error_file_id``. Memory stays flat on both sides.
        """
        key = idempotency_key or new_key()
        return self._perform(self._service.batch(Path(path), completion_window, metadata, key))

    def create_batch(
        self,
        input_file_id: str,
        *,
        completion_window: str = "24h",
        metadata: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> Batch:
        """Have every line of an uploaded file answered; it goes on by itself."""
        key = idempotency_key or new_key()
        return self._call(endpoints.create_batch(input_file_id, completion_window, metadata, key))

    def get_batch(self, batch_id: str) -> Batch:
        """A batch as it stands; its counts are live."""
        return self._call(endpoints.get_batch(batch_id))

    def iter_batches(self) -> Generator[Batch, None, None]:
        """Your own batches, newest first."""
        return self._each(self._service.batches())

    def cancel_batch(self, batch_id: str) -> Batch:
        """End a batch with what is answered by now, tried once."""
        return self._call(endpoints.cancel_batch(batch_id))

    def upload_file(self, path: str | Path) -> FileObject:
        """Upload a file of questions for a batch, a piece at a time."""
        return self._call(endpoints.upload_file(Path(path)))

    def get_file(self, file_id: str) -> FileObject:
        """What is known of a file."""
        return self._call(endpoints.get_file(file_id))

    def iter_files(self) -> Generator[FileObject, None, None]:
        """Your own files, newest first."""
        return self._each(self._service.files())

    def download_file(self, file_id: str, path: str | Path) -> None:
        """Write a file's content to ``path``, which appears once it is whole."""
        call = endpoints.read_file(file_id)
        stream, instead = self._listen(call)
        if stream is None:
            raise self._service.failure(call, instead)
        try:
            with whole_file(Path(path)) as file:
                for piece in stream.iter_bytes():
                    file.write(piece)
        except httpx2.HTTPError as error:
            raise self._service.unreachable(error, True) from error
        finally:
            stream.close()

    def delete_file(self, file_id: str) -> None:
        """Have a file forgotten."""
        self._call(endpoints.delete_file(file_id))

    def deliveries(self, job_id: str) -> list[dict[str, Any]]:
        """The webhooks of a job, and what became of them."""
        return self._call(endpoints.list_deliveries(job_id))

    def dead_deliveries(self, limit: int = 20) -> list[dict[str, Any]]:
        """Webhooks that were given up, the latest first (keys with scope `admin`)."""
        return self._call(endpoints.dead_deliveries(limit))

    def get_delivery(self, delivery_id: str) -> dict[str, Any]:
        """One webhook and every attempt at it."""
        return self._call(endpoints.get_delivery(delivery_id))

    def redeliver(self, delivery_id: str) -> dict[str, Any]:
        """Have a webhook posted again, with the same id and the same bytes."""
        return self._call(endpoints.redeliver(delivery_id))

    def cores(self) -> list[dict[str, Any]]:
        """The cores of the fleet and how they are."""
        return self._call(endpoints.cores())

    def models(self) -> list[dict[str, Any]]:
        """The model versions that can be asked."""
        return self._call(endpoints.models())

    def load_model(
        self,
        model: str,
        core: str = "all",
        *,
        count: int | None = None,
        lazy: bool = False,
        manifest_sha256: str | None = None,
    ) -> dict[str, Any]:
        """Have a core, all, or ``count`` of them load a version; where it is wanted now; see ``cores``."""
        return self._call(endpoints.load_model(model, core, count, lazy, manifest_sha256))

    def reload_model(self, version: str, core: str = "all", *, manifest_sha256: str | None = None) -> dict[str, Any]:
        """Have a core, or all that hold it, load a version anew from its artifact; where it is wanted now."""
        return self._call(endpoints.reload_model(version, core, manifest_sha256))

    def unload_model(self, version: str, core: str = "all", *, force: bool = False) -> dict[str, Any]:
        """Have a core, or all, drain and unload a version; where it is wanted now."""
        return self._call(endpoints.unload_model(version, core, force))

    def aliases(self) -> list[dict[str, Any]]:
        """The aliases and what they mean."""
        return self._call(endpoints.aliases())

    def set_alias(self, alias: str, weights: Mapping[str, float] | str, *, force: bool = False) -> dict[str, Any]:
        """Make an alias mean a version, or several by weight."""
        return self._call(endpoints.set_alias(alias, weights, force))

    def unset_alias(self, alias: str) -> dict[str, Any]:
        """Forget an alias that was set: it means again what the workers' settings mean by it."""
        return self._call(endpoints.unset_alias(alias))

    def ready(self) -> bool:
        """Whether a question asked now would be answered; tries once and never raises."""
        try:
            self._call(endpoints.ready())
        except CorelaneError:
            return False
        return True

    def _call(self, call: Call[Answer]) -> Answer:
        return self._perform(self._service.call(call))

    def _perform(self, talk: Talk[Answer]) -> Answer:
        """A talk to its end."""
        brought: Any = None
        while True:
            try:
                step = talk.send(brought)
            except StopIteration as end:
                answer: Answer = end.value
                return answer
            brought = self._step(step)

    def _each(self, talk: Talk[None]) -> Generator[Any, None, None]:
        """What a talk gives, one by one."""
        brought: Any = None
        stream: httpx2.Response | None = None
        events: Any = None
        try:
            while True:
                try:
                    step = talk.send(brought)
                except StopIteration:
                    return
                brought = None
                if isinstance(step, Give):
                    yield step.value
                elif isinstance(step, Listen):
                    if stream is not None:
                        stream.close()
                    stream, brought = self._listen(step.call)
                    events = None if stream is None else iter(httpx2.EventSource(stream))
                elif isinstance(step, Hear):
                    brought = self._hear(events)
                else:
                    brought = self._step(step)
        finally:
            if stream is not None:
                stream.close()

    def _step(self, step: Step) -> object:
        if isinstance(step, Pause):
            if step.wait is not None:
                self._on_wait(step.wait)
            time.sleep(step.seconds)
        elif isinstance(step, Send):
            return self._send(step.call)
        return None

    def _listen(self, call: Call[Any]) -> tuple[httpx2.Response | None, Reply | httpx2.HTTPError | None]:
        """An open stream, or what came in its place."""
        timeout = timeout_of(call, self._service)
        request = self._http.build_request(call.method, call.url, headers=call.headers, timeout=timeout)
        try:
            response = self._http.send(request, stream=True)
            if response.status_code == 200:
                return response, None
            content = response.read()
        except httpx2.HTTPError as error:
            return None, error
        return None, Reply(response.status_code, response.headers, content)

    def _hear(self, events: Any) -> httpx2.ServerSentEvent | httpx2.HTTPError | None:
        try:
            heard: httpx2.ServerSentEvent | None = next(events, None)
        except httpx2.HTTPError as error:
            return error
        return heard

    def _send(self, call: Call[Any]) -> Reply | httpx2.HTTPError:
        try:
            response = self._http.request(
                call.method,
                call.url,
                params=call.params,
                headers=call.headers,
                content=call.content() if callable(call.content) else call.content,
                timeout=timeout_of(call, self._service),
            )
        except httpx2.HTTPError as error:
            return error
        return Reply(response.status_code, response.headers, response.content)
