"""Turn templates into responses of the console.

Every value in a template is escaped. Addresses in templates are relative to the console (``jobs``, ``static/x.css``,
``.`` for the overview), so the console works behind a proxy's prefix as well: the layout has a ``<base>``.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2
import markupsafe
import orjson
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from api.request_facts import CALLER
from corelane import __version__, tasks
from corelane.domain.api_keys import Caller, Scope, scope_names
from corelane.domain.ids import iso_time
from corelane.plugins.console.pages.nav import ADDED, NAV
from corelane.tasks.task import Task

HERE = Path(__file__).parent

#: Commands and settings in a sentence.
CODE = re.compile(r"`([^`]+)`")

#: Scripts, styles and connections come only from the service, there is no inline code, and no page may frame this one.
#: A referrer is sent only to the service: without one, browsers hide the `Origin` of forms, which changes need.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

#: htmx requests only this service and adds no styles. Parts that a reader opened stay open when they are replaced. The
#: policy above prevents it from evaluating code.
HTMX = (
    '{"mode":"same-origin","includeIndicatorCSS":false,"defaultTimeout":30000,'
    '"morphIgnore":["data-htmx-powered","open"]}'
)


def number(value: float) -> str:
    """Write a number for people: 84,210; 3.4; 0.25."""
    if isinstance(value, int) or value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:,.2g}"


def duration(seconds: float | None) -> str:
    """Write a time for people: 8 ms, 2.4 s, 35 min, 3 h 20 min, 5 d."""
    if seconds is None:
        return "–"
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d"


def size(value: float | None) -> str:
    """Write bytes for people: 812 B, 4.5 MiB."""
    if value is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def percent(ratio: float | None) -> str:
    """Write a share: 93 %, 99.4 %."""
    if ratio is None:
        return "–"
    return f"{100 * ratio:.0f} %" if ratio in (0, 1) or 0.01 <= ratio <= 0.99 else f"{100 * ratio:.1f} %"


def tally(states: Iterable[str]) -> str:
    """Write how many there are of each, the most first: 18 ready, 1 failed."""
    return ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in Counter(states).most_common())


def prose(text: str) -> markupsafe.Markup:
    """Return a sentence of the service, escaped; text in backticks becomes code."""
    return markupsafe.Markup(CODE.sub(r"<code>\1</code>", str(markupsafe.escape(text))))  # noqa: S704


def pretty(value: Any) -> str:
    """Return a value as JSON for people."""
    return orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2).decode()


def made_for(task: Task, name: str) -> list[str]:
    """Return the templates for an item, result or form of a task, the task's own template first."""
    return [f"{task.name.replace('-', '_')}/console/{name}.html", f"any/{name}.html"]


def iso(value: float | str) -> str:
    """Return a time as RFC 3339 in UTC; numbers are seconds."""
    return value if isinstance(value, str) else iso_time(round(1000 * value))


def make_environment() -> jinja2.Environment:
    """Return the environment of all templates: everything is escaped, and a missing value is an error."""
    own = HERE / "templates", Path(tasks.__file__).parent
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*own, *(pages.templates for pages in ADDED)]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for write in (number, duration, size, percent, iso, tally, prose, pretty):
        made.filters[write.__name__] = write
    made.globals.update(nav=NAV, htmx_config=HTMX, version=__version__, made_for=made_for)
    return made


ENVIRONMENT = make_environment()


def fragment(template: str, **shown: Any) -> str:
    """Return a template as text: a part of a page, for a stream or a replacement."""
    return ENVIRONMENT.get_template(template).render(shown)


def base_of(request: Request) -> str:
    """Return the relative address of the console from a request's own path, with a slash at its end."""
    return "../" * (request.url.path.count("/") - 1) + "console/"


def is_htmx(request: Request) -> bool:
    """Return whether htmx requests a part of a page."""
    return request.headers.get("hx-request") == "true"


def render(request: Request, template: str, status: int = 200, **shown: Any) -> Response:
    """Return a page, or a part of one.

    In the template ``can.admin`` and similar names say what the caller may do. Buttons that the caller may not use are
    left out. ``here`` is the address of the page, relative to the console, without its query.
    """
    caller: Caller | None = request.scope.get(CALLER)  # None on pages that need no session
    scopes = caller.scopes if caller else frozenset[Scope]()
    shared = {
        "base": base_of(request),
        "here": request.url.path.removeprefix("/console").strip("/") or ".",
        "caller": caller,
        "can": rights(scopes),
        "scopes": scope_names(scopes),
        "has_session": request.app.state.app_state.settings.requires_keys and caller is not None,
        "stream": None,
    }
    text = fragment(template, **(shared | shown))
    return HTMLResponse(text, status, HEADERS)


def rights(scopes: Iterable[Scope]) -> dict[str, bool]:
    """Return the rights of a caller with these scopes, as templates use them: ``can.admin`` and so on."""
    return {scope.value: scope in scopes for scope in Scope}
