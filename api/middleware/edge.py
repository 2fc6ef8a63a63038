"""The edge: the two ASGI layers around all routes.

``OuterLayer`` gives each request its facts and each response its headers, measures it, and refuses foreign hosts.
``InnerLayer`` identifies the caller and limits the rate and the body, before the body is read and a route is chosen. So
a new route cannot be left open by mistake. Headers for browsers' cross-origin rules are added between the two.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import refuse
from api.middleware.hosts import PREFIX, forwarded, is_allowed, is_private
from api.middleware.key_cache import KeyCache
from api.middleware.packed_bodies import unpack
from api.middleware.rate_limit import Kind, RateLimiter, RateStanding, address_of
from api.middleware.sections import Section, own_cookies
from api.middleware.unread_body import RequestBody, send_while_unread
from api.request_facts import (
    CALLER,
    LINES,
    PAGE,
    PROBES,
    REQUEST_FACTS,
    REQUEST_ID,
    STRICT,
    TRACEPARENT,
    content_type,
    has_body,
    read_headers,
)
from corelane.domain import api_keys
from corelane.domain.api_keys import Caller
from corelane.domain.dispatch import PUBLIC
from corelane.domain.request_facts import RequestFacts, continue_trace, read_request_id, trace_id
from corelane.errors import BodyTooSlow, CorelaneError, Forbidden, HostRefused, TooLarge, Unauthorized
from corelane.log import bind_lines
from corelane.metrics.definitions import HTTP_REQUEST_S, HTTP_REQUESTS
from corelane.metrics.recorder import OTHER, Recorder
from corelane.settings import Settings

#: Longest silence in the middle of a request's body, in seconds: mobile networks pause for less.
BODY_TIMEOUT_S = 30.0

#: Most digits of a number that a caller sends. Longer ones are mistakes, and Python refuses thousands of digits.
MOST_DIGITS = 18

#: Paths that never need a key: probes, and the page that documents the API.
OPEN = frozenset({"/", *PROBES, "/docs", "/openapi.json", "/favicon.ico"})
METRICS, PAGE_FILES = "/metrics", "/docs/"

#: The method and path by which clients of Text Embeddings Inference ask a model.
ASKS = ("POST", "/")

READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

#: Methods that make jobs, files and batches.
CREATE_METHODS = frozenset({"POST", "PUT"})

#: Content types of forms, and the most bytes of one: reading 8 MB of separators takes 3 s.
FORMS, FORM_BYTES = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"}), 4096

#: The methods that have their own metrics.
METHODS = READ_METHODS | CREATE_METHODS | {"DELETE", "PATCH"}

#: The status of a request whose caller disconnected before the response, as nginx logs it.
LEFT_STATUS = 499

#: Every caller of a service that does not check keys.
ANYBODY = Caller(PUBLIC, frozenset(api_keys.Scope))

#: The name of the request id's header, as it is sent.
ID_SENT = REQUEST_ID.lower().encode()
STRICT_SENT, PAGE_SENT = (
    [(name.lower().encode(), value.encode()) for name, value in policy.items()] for policy in (STRICT, PAGE)
)


@dataclass(slots=True)
class Timing:
    """The start of one request and of its response, by the performance clock, and the response's status."""

    begun_s: float
    started_s: float = 0.0
    status: int = LEFT_STATUS


class OuterLayer:
    """The layer that every request enters first."""

    def __init__(self, app: ASGIApp, settings: Settings, recorder: Recorder) -> None:
        self._app = app
        self._recorder = recorder
        self._hops = settings.trusted_hops
        self._hosts = tuple(host.lower() for host in settings.allowed_hosts)
        #: Whether only private host names are served: nothing else keeps web pages of other sites from the responses.
        self._only_private = not (settings.requires_keys or self._hosts or self._hops)

    async def __call__(self, scope: Scope, source: Receive, sink: Send) -> None:
        """Serve one request, and measure it."""
        if scope["type"] != "http":
            await self._app(scope, source, sink)
            return
        timing = Timing(perf_counter())
        try:
            await self._serve(scope, source, sink, timing)
        except Exception:
            timing.status = timing.status if timing.started_s else 500
            raise
        finally:
            self._measure(scope, timing)

    def _is_reached_by(self, host: str, path: str) -> bool:
        """Return whether a request may use this host name."""
        if self._only_private:
            return path in (*PROBES, METRICS) or is_private(host)
        return not self._hosts or path in PROBES or is_allowed(host, self._hosts)

    def _measure(self, scope: Scope, timing: Timing) -> None:
        """Count a request by its route, not its path. A request that was refused before it had a route has none."""
        route = getattr(scope.get("route"), "path", None) or OTHER
        method = scope["method"] if scope["method"] in METHODS else OTHER
        self._recorder.add(HTTP_REQUESTS, 1, route, method, str(timing.status))
        seconds = (timing.started_s or perf_counter()) - timing.begun_s
        self._recorder.add(HTTP_REQUEST_S, seconds, route, method)

    async def _serve(self, scope: Scope, source: Receive, sink: Send, timing: Timing) -> None:
        request_id = enter_request(read_headers(scope), scope.get(TRACEPARENT, ""))
        if self._hops:
            scope.update(forwarded(scope, self._hops))
        if cookies := read_headers(scope).get("cookie"):
            others = [pair for pair in scope["headers"] if pair[0] != b"cookie"]
            scope["headers"] = [*others, (b"cookie", own_cookies(cookies).encode("latin-1"))]
        policy = PAGE_SENT if scope["path"] == "/docs" else STRICT_SENT
        # Over HTTP/2 a request may have a body without saying so.
        body = RequestBody(source, is_whole=scope["http_version"] != "2" and not has_body(read_headers(scope)))

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                timing.started_s, timing.status = perf_counter(), message["status"]
                message["headers"] = with_edge(message.get("headers", ()), request_id, policy)
                if prefix := scope.get(PREFIX):
                    message["headers"] = with_prefix(message["headers"], prefix)
            if body.is_whole:
                await sink(message)
            else:
                await send_while_unread(body, message, sink, can_close=scope["http_version"] != "2")

        if not self._is_reached_by(read_headers(scope).get("host", ""), scope["path"]):
            error = HostRefused("this service is not reached by that host name; CORELANE_ALLOWED_HOSTS has its names")
            await refuse(scope, body.receive, send, error)
            return
        await self._app(scope, body.receive, send)


class InnerLayer:
    """The layer in front of the routes: refuses with 401, 403, 413 or 429, or passes a request on with its caller."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        keys: KeyCache,
        rates: RateLimiter,
        body_limits: Mapping[str, tuple[int, str]],
        sections: Sequence[Section],
    ) -> None:
        """``body_limits`` has, by path, the most bytes of a body and their setting, if they differ from the usual."""
        self._app, self._settings, self._sections = app, settings, sections
        self._keys, self._rates, self._body_limits = keys, rates, body_limits
        self._open = OPEN if settings.requires_keys and not settings.open_metrics else OPEN | {METRICS}

    async def __call__(self, scope: Scope, source: Receive, sink: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, source, sink)
            return
        send, error = sink, None
        headers = read_headers(scope)
        below = f"{scope['path']}/"
        section = next((each for each in self._sections if below.startswith(f"{each.prefix}/")), None)
        if not (self._is_open(scope["method"], scope["path"]) or (section and section.is_open(scope["path"]))):
            secret = given_key(headers)
            try:
                if section and self._settings.requires_keys and not secret:
                    caller = await section.identify(section.session_of(headers), scope["path"])
                else:
                    caller = await self._identify(secret)
            except CorelaneError as refusal:
                caller, error = None, refusal
            if self._rates.is_on:
                named = caller if self._settings.requires_keys else None
                who = f"owner:{named.owner}" if named else f"address:{address_of(scope.get('client'))}"
                kind = Kind.READS if scope["method"] in READ_METHODS else Kind.SUBMITS
                standing = await self._rates.count(kind, who)
                if standing is not None:
                    send = with_standing(standing, sink)
                    error = error if standing.is_within else standing.error()
            if error is None and caller and scope["path"] == METRICS and api_keys.Scope.READ not in caller.scopes:
                error = Forbidden("this API key may not do that: it needs the scope `read`")
            scope[CALLER] = caller
        most = self._most_bytes(scope["path"], headers)
        declared = headers.get("content-length", "")
        if error is None and declared.isdecimal() and (len(declared) > MOST_DIGITS or int(declared) > most[0]):
            error = too_large(*most)
        elif error is None and "content-encoding" in headers:
            source, error = unpack(scope, headers, source, too_large(*most), most[0])
        if error is not None:
            await (section.refuse if section else refuse)(scope, source, send, error)
            return
        received, is_whole, timeout_s = 0, False, BODY_TIMEOUT_S

        async def receive() -> Message:
            nonlocal received, is_whole
            if is_whole:
                # From here on only a disconnect can be received: long polls and streams send nothing.
                return await source()
            try:
                async with asyncio.timeout(timeout_s):
                    message = await source()
            except TimeoutError:
                raise BodyTooSlow(f"nothing more of the body came for {timeout_s:g} s; send it again") from None
            received += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if received > most[0]:
                raise too_large(*most)
            return message

        if scope["method"] == "HEAD":
            await serve_head(self._app, scope, send)
            return
        await self._app(scope, receive, send)

    def _is_open(self, method: str, path: str) -> bool:
        return path.startswith(PAGE_FILES) or (path in self._open and (method, path) != ASKS)

    async def _identify(self, secret: str) -> Caller:
        """Return the caller; raise Unauthorized for a bad key. If keys are not checked, all callers are one owner."""
        if not self._settings.requires_keys:
            return ANYBODY
        if not secret:
            raise Unauthorized("this service needs an API key: send `Authorization: Bearer clk_…`")
        key = await self._keys.find(secret)
        return Caller(key.owner, key.scopes, key.name)

    def _most_bytes(self, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
        """Return the most bytes that a body may have, and the name of the setting that says so; empty if none does."""
        if (given := content_type(headers)) in LINES:
            return self._settings.max_upload_bytes, "CORELANE_MAX_UPLOAD_BYTES"
        usual = (FORM_BYTES, "") if given in FORMS else (self._settings.max_body_bytes, "CORELANE_MAX_BODY_BYTES")
        return self._body_limits.get(path) or usual


def with_edge(
    headers: Iterable[tuple[bytes, bytes]], request_id: str, policy: list[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    """Add the request's id to a response's headers, and the headers of ``policy`` that the response does not set."""
    sent = [pair for pair in headers if pair[0] != ID_SENT]
    names = {name for name, _ in sent}
    return [*sent, (ID_SENT, request_id.encode()), *(pair for pair in policy if pair[0] not in names)]


def with_prefix(headers: Iterable[tuple[bytes, bytes]], prefix: bytes) -> list[tuple[bytes, bytes]]:
    """Return a response's headers with a proxy's prefix before the paths that lead to this service."""
    begins = {b"location": b"/", b"link": b"</"}
    return [
        (name, value[: (at := len(begins[name]) - 1)] + prefix + value[at:])
        if name in begins and value.startswith(begins[name])
        else (name, value)
        for name, value in headers
    ]


async def serve_head(app: ASGIApp, scope: Scope, send: Send) -> None:
    """Serve a HEAD request as a GET request whose caller leaves once the headers are sent."""
    asked, begun = {**scope, "method": "GET"}, asyncio.Event()

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body"})
            begun.set()

    async def receive() -> Message:
        await begun.wait()
        return {"type": "http.disconnect"}

    try:
        await app(asked, receive, send_head)
    finally:
        scope["route"] = asked.get("route")


def with_standing(standing: RateStanding, sink: Send) -> Send:
    """Return a sink that adds the headers about a caller's limit to the response."""

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(standing.headers())
        await sink(message)

    return send


def too_large(most: int, setting: str) -> TooLarge:
    """Return the error for a body of more than ``most`` bytes; ``setting`` is the setting to raise, empty if none."""
    remedy = f"in several parts, or raise {setting}" if setting else "as JSON: forms are for short values"
    return TooLarge(f"the body has more than {most:,} bytes; send it {remedy}")


def enter_request(headers: Mapping[str, str], traceparent: str) -> str:
    """Make the request's facts the current ones, for its handlers and log lines; return the request id.

    The facts are never reset: the response to an unforeseen error is sent outside the layers, and needs the id too.
    """
    request_id = read_request_id(headers.get("x-request-id", ""))
    parent = traceparent or continue_trace(headers.get("traceparent", ""))
    REQUEST_FACTS.set(RequestFacts(request_id, parent))
    bind_lines(request_id=request_id, **({"trace_id": trace_id(parent)} if parent else {}))
    return request_id


def given_key(headers: Mapping[str, str]) -> str:
    """Return the key in a request; empty if there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return headers.get("x-api-key") or (token.strip() if scheme.lower() == "bearer" else "")
