"""Downloads, streamed: lines of JSON, or CSV for spreadsheets."""

import csv
import io
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Literal

import orjson

from api.request_facts import NDJSON
from api.routes.results import CuttableStream
from corelane.plugins.console.pages.render import HEADERS

DownloadForm = Literal["jsonl", "csv"]

#: The content type of each form.
KINDS = {"jsonl": NDJSON, "csv": "text/csv; charset=utf-8"}


def download(name: str, form: DownloadForm, content: AsyncIterator[bytes]) -> CuttableStream:
    """Send a file of this name, without its ending, in pieces; it is cut if ``content`` raises StreamCut."""
    response = CuttableStream(content, media_type=KINDS[form])
    response.headers.update({**HEADERS, "Content-Disposition": f'attachment; filename="{name}.{form}"'})
    return response


def as_csv(rows: Iterable[Sequence[object]]) -> bytes:
    """Return rows as CSV: lists and objects as JSON, null as an empty cell."""
    out = io.StringIO()
    csv.writer(out).writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue().encode()


def _cell(value: object) -> object:
    if isinstance(value, dict | list):
        return orjson.dumps(value).decode()
    return inert(value) if isinstance(value, str) else value


def inert(cell: str) -> str:
    """Return a cell that no spreadsheet interprets as a formula."""
    return f"'{cell}" if cell[:1] in "=+-@\t\r" and cell else cell
