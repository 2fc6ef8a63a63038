"""The Python client: one question or a million, answers as typed models. Needs neither torch nor a server's libraries.

What changes nothing is tried again, with back-off, while the service is away or overloaded. A job is sent again only
if it was surely not taken in: no connection, or a refusal (429, 503); one sent as lines never is. Every failure is
ServiceError (the service said why), ServiceUnreachable (nobody said anything) or InvalidInput.
"""

import random
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx2
import orjson
from pydantic import BaseModel, ValidationError

from corelane.errors import CorelaneError, InvalidInput, ServiceError, ServiceUnreachable
from corelane.jobs import Item, Job, LinesHead, Options, Priority, Result, ResultList, Webhook

#: Longest wait of one request, in seconds: below the 60 s after which proxies drop a silent connection.
LONGEST_POLL_S = 55.0

#: Results of a running job are looked for this often, in seconds; its end is noticed at once.
FOLLOW_S = 2.0

#: Least time between two looks at a job if the service does not honour `wait`, in seconds.
LEAST_POLL_S = 0.2

#: Idle connections are given up before the service may do so (Hypercorn: 5 s), lest a job be sent into a closed one.
KEEPALIVE_S = 2.0

#: First pause before a call is repeated, doubled each time; and the longest, whatever the service asks for. Seconds.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 60.0

#: Refusals that pass: nothing was kept, try again.
OVERLOADED = frozenset({429, 503})

#: A proxy's way of saying that the service is away: worth another try where trying twice does no harm.
AWAY = OVERLOADED | {502, 504}

#: Results asked for in one page.
PAGE_ITEMS = 500

#: A job's lines are sent in pieces of this size, in bytes.
PIECE_BYTES = 64 * 1024

#: Our own code for HTTP failures that carry no problem document: a proxy's, or not Corelane at all.
FOREIGN = "http_error"

JobItem = Item | Mapping[str, Any]
Model = TypeVar("Model", bound=BaseModel)


class Client:
    """Talks to one service; safe to share between threads. Close it, or use it in a ``with``."""

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        api_key: str | None = None,
        *,
        timeout_s: float = 30.0,
        max_retries: int = 4,
    ) -> None:
        """``timeout_s`` bounds connecting and each silence, on top of any time asked to wait."""
        self.base_url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._max_retries = max_retries
        try:
            self._http = httpx2.Client(
                base_url=self.base_url,
                limits=httpx2.Limits(max_connections=100, keepalive_expiry=KEEPALIVE_S),
                trust_env=host_of(base_url) not in ("localhost", "127.0.0.1", "::1"),
            )
        except (ValueError, httpx2.InvalidURL) as error:
            raise InvalidInput(f"{base_url!r} is not a service's address: {error}") from None
        if api_key:
            self._http.headers["Authorization"] = f"Bearer {checked_key(api_key)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def submit(
        self,
        items: Iterable[JobItem],
        *,
        model: str = "default",
        sticky_key: str | None = None,
        contexts: Mapping[str, str] | None = None,
        options: Options | Mapping[str, Any] | None = None,
        priority: Priority | str | None = None,
        expires_in_s: float | None = None,
        refuse_if_late: bool = False,
        metadata: Mapping[str, str] | None = None,
        webhook: Webhook | Mapping[str, Any] | None = None,
        wait_s: float = 0.0,
    ) -> Job:
        """Hand in a job; it is kept once this returns, and final already if it ended within ``wait_s``.

        Items name those of ``contexts`` by ``context_id``. ``refuse_if_late`` raises ServiceError (409) if the job is
        not expected to be done within ``expires_in_s``. Where ``model`` is an alias of several versions, jobs with the
        same ``sticky_key`` get the same one.
        """
        parts = {
            "sticky_key": sticky_key,
            "contexts": contexts,
            "options": options,
            "priority": priority,
            "expires_in_s": expires_in_s,
            "refuse_if_late": refuse_if_late or None,
            "metadata": metadata,
            "webhook": webhook,
        }
        body = {"items": list(items), "model": model} | {n: part for n, part in parts.items() if part is not None}
        wait_s = min(wait_s, LONGEST_POLL_S)
        response = self._call(
            "POST",
            "/v1/jobs",
            content=dump_body(body),
            headers={"Content-Type": "application/json"} | ({"Prefer": f"wait={wait_s:.0f}"} if wait_s >= 1 else {}),
            wait_s=wait_s,
            repeatable=False,
        )
        return self._read(Job, response)

    def submit_lines(self, items: Iterable[JobItem], head: LinesHead | Mapping[str, Any] | None = None) -> Job:
        """Hand in a job of any number of items, sent as they come; nothing of it is kept if this raises a refusal.

        Memory stays flat. Items are checked by the service alone, which names a bad one by its line: the head is
        line 1, the first item line 2. Tried once: an iterator cannot be sent again.
        """
        response = self._call(
            "POST",
            "/v1/jobs",
            content=dump_lines(head or {}, items),
            headers={"Content-Type": "application/x-ndjson"},
            repeatable=False,
            max_retries=0,
        )
        return self._read(Job, response)

    def get(self, job_id: str, wait_s: float = 0.0) -> Job:
        """A job once it is final, or as it stands after ``wait_s`` (at most 55 s)."""
        wait_s = min(wait_s, LONGEST_POLL_S)
        params = {"wait": f"{wait_s:.3f}"} if wait_s > 0 else {}
        return self._read(Job, self._call("GET", job_path(job_id), params=params, wait_s=wait_s))

    def wait(self, job_id: str, timeout_s: float | None = None) -> Job:
        """A job once it is final, or as it stands after ``timeout_s``: look at its status."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = LONGEST_POLL_S if deadline is None else max(0.0, deadline - time.monotonic())
            job = self._poll(job_id, left)
            if job.status.is_final or (deadline is not None and time.monotonic() >= deadline):
                return job

    def iter_results(self, job_id: str, *, drop: bool = False) -> Generator[Result, None, None]:
        """Results in item order, from the first that was not dropped; follows a running job to its end.

        With ``drop`` the service forgets each page of results once the caller asks for the one after its last. So a
        caller that has stored a result before it asks for the next loses none, whenever it stops; next time it reads
        the page it stopped in again, and perhaps a few results before that. A job with a ``results_window`` is read to
        its end only so.
        """
        after: str | None = None
        is_final = False
        while True:
            page = self._page(job_id, after)
            yield from page.data
            if drop and page.data:
                self.drop_results(job_id, page.data[-1].index + 1)
            if not page.has_more or page.next is None:
                return
            after = page.next
            if is_final and not page.data:
                raise self._strange(f"{job_id} is final but its results end at item {after}")
            if len(page.data) < PAGE_ITEMS:
                is_final = self._poll(job_id, FOLLOW_S).status.is_final

    def drop_results(self, job_id: str, before: int) -> Job:
        """Have the service forget stored results of items before this one; the job's ``results_from`` says how far."""
        return self._read(Job, self._call("DELETE", f"{job_path(job_id)}/results", params={"before": str(before)}))

    def ask(self, question: str, context: str, *, model: str = "default", **options: Any) -> Result:
        """Ask one question and wait for its answer, as long as it takes; ``options`` are those of a job."""
        item = {"question": question, "context": context}
        job = self.submit([item], model=model, options=options, wait_s=LONGEST_POLL_S)
        if not job.status.is_final:
            job = self.wait(job.id)
        for result in job.results or self.iter_results(job.id):
            return result
        raise self._strange(f"{job.id} has one item but no result")

    def cancel(self, job_id: str) -> Job:
        """Cancel what is not answered yet, tried once; changes nothing about a job that is final."""
        return self._read(Job, self._call("POST", f"{job_path(job_id)}/cancel", max_retries=0))

    def cores(self) -> list[dict[str, Any]]:
        """The cores of the fleet and how they are."""
        return self._list("/v1/cores")

    def models(self) -> list[dict[str, Any]]:
        """The model versions that can be asked."""
        return self._list("/v1/models")

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
        given = {"model": model, "count": count, "lazy": lazy, "manifest_sha256": manifest_sha256}
        return self._change("POST", f"/v1/cores/{core}/models", given)

    def reload_model(self, version: str, core: str = "all", *, manifest_sha256: str | None = None) -> dict[str, Any]:
        """Have a core, or all that hold it, load a version anew from its artifact; where it is wanted now."""
        path = f"/v1/cores/{core}/models/{quote(version, safe='@')}/reload"
        return self._change("POST", path, {"manifest_sha256": manifest_sha256})

    def unload_model(self, version: str, core: str = "all", *, force: bool = False) -> dict[str, Any]:
        """Have a core, or all, drain and unload a version; where it is wanted now."""
        path = f"/v1/cores/{core}/models/{quote(version, safe='@')}"
        return self._change("DELETE", path, params={"force": "true"} if force else {})

    def aliases(self) -> list[dict[str, Any]]:
        """The aliases and what they mean."""
        return self._list("/v1/aliases")

    def set_alias(self, alias: str, weights: Mapping[str, float] | str, *, force: bool = False) -> dict[str, Any]:
        """Make an alias mean a version, or several by weight."""
        means = {"version": weights} if isinstance(weights, str) else {"weights": dict(weights)}
        return self._change("PUT", f"/v1/aliases/{quote(alias, safe='')}", means | {"force": force})

    def unset_alias(self, alias: str) -> dict[str, Any]:
        """Forget an alias that was set: it means again what the workers' settings mean by it."""
        return self._change("DELETE", f"/v1/aliases/{quote(alias, safe='')}")

    def ready(self) -> bool:
        """Whether a question asked now would be answered; tries once and never raises."""
        try:
            return self._http.get("/readyz", timeout=self._timeout_s).is_success
        except httpx2.HTTPError:
            return False

    def _page(self, job_id: str, after: str | None) -> ResultList:
        params = {"limit": str(PAGE_ITEMS)} | ({"after": after} if after else {})
        return self._read(ResultList, self._call("GET", f"{job_path(job_id)}/results", params=params))

    def _poll(self, job_id: str, wait_s: float) -> Job:
        """``get``, but never a busy loop when repeated, even if the service answers early."""
        started = time.monotonic()
        job = self.get(job_id, wait_s)
        if not job.status.is_final:
            time.sleep(max(0.0, min(wait_s, LEAST_POLL_S) - (time.monotonic() - started)))
        return job

    def _change(self, method: str, path: str, body: object = None, **request: Any) -> dict[str, Any]:
        """A change to the fleet, and what it is now; each may be repeated."""
        if body is not None:
            request |= {"content": dump_body(body), "headers": {"Content-Type": "application/json"}}
        try:
            return dict(orjson.loads(self._call(method, path, **request)))
        except (orjson.JSONDecodeError, TypeError, ValueError):
            raise self._strange(f"{path} is not an object") from None

    def _list(self, path: str) -> list[dict[str, Any]]:
        try:
            return list(orjson.loads(self._call("GET", path))["data"])
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise self._strange(f"{path} is not a list") from None

    def _read(self, kind: type[Model], body: bytes) -> Model:
        try:
            return kind.model_validate_json(body, extra="ignore")
        except ValidationError:
            raise self._strange(f"no {kind.__name__} came back") from None

    def _strange(self, what: str) -> ServiceError:
        detail = f"{self.base_url} does not answer as Corelane does: {what}"
        return ServiceError(detail, status=200, problem_code=FOREIGN)

    def _call(
        self,
        method: str,
        path: str,
        *,
        wait_s: float = 0.0,
        repeatable: bool = True,
        max_retries: int | None = None,
        **request: Any,
    ) -> bytes:
        """One call, repeated where that is safe and may help; the body of a success."""
        timeout = httpx2.Timeout(self._timeout_s, read=self._timeout_s + wait_s)
        most = self._max_retries if max_retries is None else max_retries
        attempt = 0
        while True:
            retry_after = None
            try:
                response = self._http.request(method, path, timeout=timeout, **request)
                if response.is_success:
                    return response.content
                failure: CorelaneError = read_problem(response.status_code, response.content)
                may_help = response.status_code in (AWAY if repeatable else OVERLOADED)
                retry_after = response.headers.get("Retry-After")
            except httpx2.HTTPError as error:
                failure = self._unreachable(error, repeatable)
                may_help = repeatable or isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
            if not may_help or attempt >= most:
                raise failure
            time.sleep(pause_s(attempt, retry_after, random.random()))
            attempt += 1

    def _unreachable(self, error: httpx2.HTTPError, repeatable: bool) -> ServiceUnreachable:
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            return ServiceUnreachable(f"no Corelane answers at {self.base_url}; start one with `corelane serve`")
        doubt = "" if repeatable else "; whether it took the job in is not known"
        if isinstance(error, httpx2.TimeoutException):
            return ServiceUnreachable(f"{self.base_url} was silent for {self._timeout_s:g} s{doubt}")
        return ServiceUnreachable(f"{self.base_url} broke off: {error or type(error).__name__}{doubt}")


def checked_key(api_key: str) -> str:
    """The key; raises InvalidInput, which does not show it, if no header can carry it."""
    if not all("!" <= char <= "~" for char in api_key):
        raise InvalidInput("an API key is printable ASCII without spaces")
    return api_key


def host_of(url: str) -> str:
    """The host of an http or https address; raises ValueError if there is none, or no port can be read."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("it does not begin with http:// or https:// and a host")
    return parts.hostname


def local_url(host: str, port: int) -> str:
    """Where a service that listens on ``host`` is reached from its own machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  looked for, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def job_path(job_id: str) -> str:
    """The path of a job, whatever characters the id has."""
    return f"/v1/jobs/{quote(job_id, safe='')}"


def pause_s(attempt: int, retry_after: str | None, chance: float) -> float:
    """Seconds before the next attempt: what the service asked for, else doubling; spread by ``chance`` in [0, 1)."""
    if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
        return min(float(retry_after) * (1 + chance / 4), LONGEST_PAUSE_S)
    return min(FIRST_PAUSE_S * 2.0 ** min(attempt, 16), LONGEST_PAUSE_S) * (1 + chance) / 2


def read_problem(status: int, body: bytes) -> ServiceError:
    """A refusal as an error: a problem document's own words, or that there are none."""
    with suppress(orjson.JSONDecodeError):
        problem = orjson.loads(body)
        if isinstance(problem, dict) and isinstance(problem.get("detail"), str):
            return ServiceError(problem["detail"], status=status, problem_code=str(problem.get("code", FOREIGN)))
    return ServiceError(f"HTTP {status} without a reason; is this Corelane?", status=status, problem_code=FOREIGN)


def dump_body(value: object) -> bytes:
    """JSON of plain data and models; raises InvalidInput for text that is not Unicode."""
    try:
        return orjson.dumps(value, default=_plain)
    except orjson.JSONEncodeError as error:
        raise InvalidInput(f"the job cannot be written as JSON: {error}") from None


def dump_lines(head: object, items: Iterable[JobItem]) -> Iterator[bytes]:
    """A job as lines, the head first, in pieces of some ``PIECE_BYTES``."""
    piece = bytearray(dump_body(head) + b"\n")
    for item in items:
        piece += dump_body(item) + b"\n"
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _plain(value: object) -> dict[str, Any]:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not plain data")
