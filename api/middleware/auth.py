"""The gate before every route: whose request it is, and whether they may ask again so soon. Pure ASGI.

It stands before the body is read and before any route is looked for, so that a route can be forgotten but not left
open. What it finds is in the scope, where ``api.deps`` picks it up; scopes of keys are for the routes to ask for.
"""

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import refuse
from api.middleware.key_cache import Keyring
from api.middleware.rate_limit import Kind, Rates, Standing, address_of
from corelane.domain import api_keys
from corelane.domain.api_keys import Caller
from corelane.domain.dispatch import PUBLIC
from corelane.errors import CorelaneError, Forbidden, RateLimited, Unauthorized
from corelane.settings import Settings
from corelane.store.jobs.owners import Owners

#: Where the caller stands in the scope.
CALLER = "corelane.caller"

#: What needs no key, ever: probes, and the page that says what to send.
OPEN = frozenset({"/", "/livez", "/readyz", "/docs", "/openapi.json", "/favicon.ico"})

METRICS, PAGE_FILES = "/metrics", "/docs/"

#: Methods that only look.
READING = frozenset({"GET", "HEAD", "OPTIONS"})

#: Methods that make jobs, files and batches.
KEEPING = frozenset({"POST", "PUT"})


class Gate:
    """Lets requests through with their caller, or answers 401, 403 or 429."""

    def __init__(self, app: ASGIApp, settings: Settings, keyring: Keyring, owners: Owners, rates: Rates) -> None:
        self._app = app
        self._owners = owners
        self._keyring = keyring
        self._rates = rates
        self._needs_key = settings.requires_keys
        self._guards_metrics = settings.requires_keys and not settings.open_metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or self._is_open(scope["path"]):
            await self._app(scope, receive, send)
            return
        secret = given_key(Headers(scope=scope))
        caller, error = await self._identify(secret, keeps=scope["method"] in KEEPING)
        who = f"owner:{caller.owner}" if caller and secret else f"address:{address_of(scope.get('client'))}"
        standing = await self._rates.count(Kind.READS if scope["method"] in READING else Kind.SUBMITS, who)
        if standing is not None:
            send = telling(send, standing)
            if not standing.is_within:
                error = too_often(standing)
        if error is None and scope["path"] == METRICS and caller and api_keys.Scope.READ not in caller.scopes:
            error = Forbidden("this API key may not do that: it needs the scope `read`")
        if error is not None:
            await refuse(scope, receive, send, error)
            return
        scope[CALLER] = caller
        await self._app(scope, receive, send)

    def _is_open(self, path: str) -> bool:
        return path in OPEN or path.startswith(PAGE_FILES) or (path == METRICS and not self._guards_metrics)

    async def _identify(self, secret: str, *, keeps: bool) -> tuple[Caller | None, CorelaneError | None]:
        """Return the caller, or the error that rejects the request; ``keeps`` says that it may make something."""
        try:
            if not self._needs_key:
                owner = api_keys.unchecked_owner(secret) if secret else PUBLIC
                if secret and keeps:
                    await self._owners.admit(owner)
                return Caller(owner, frozenset(api_keys.Scope)), None
            if not secret:
                raise Unauthorized("this service needs an API key: send `Authorization: Bearer clk_…`")
            key = await self._keyring.find(secret)
        except CorelaneError as error:
            return None, error
        return Caller(key.owner, key.scopes), None


def given_key(headers: Headers) -> str:
    """The key a request carries; empty without one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return headers.get("x-api-key") or (token.strip() if scheme.lower() == "bearer" else "")


def telling(send: Send, standing: Standing) -> Send:
    """A ``send`` that tells of the caller's standing in the response's headers."""

    async def send_with_standing(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(standing.headers())
        await send(message)

    return send_with_standing


def too_often(standing: Standing) -> RateLimited:
    """The error of a request beyond the limit."""
    return RateLimited(
        f"more than {standing.most:,} {standing.kind} in {standing.window_s:,} s; come back after {standing.reset_s} s",
        standing.reset_s,
    )
