"""``corelane plan record``: a trace of what a service was asked, or of what a bench run sent.

A service is asked for its jobs of the last minutes: their times, items and tokens. So nothing has to be on while the
load comes. Jobs that were deleted, or are kept no longer, are not in the trace. A trace has estimated tokens; a job
knows those that were read, and a profile their ratio.
"""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import orjson
import typer

from corelane.cli.output import error_console
from corelane.cli.service import KeyOption, UrlOption, connect
from corelane.domain.traces import TraceEntry, write_trace
from corelane.errors import InvalidInput

#: A time such as `90s`, `10m` or `2h`.
SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|h)")
UNITS_S = {"s": 1, "m": 60, "h": 3600}


def record(
    file: Annotated[Path, typer.Argument(metavar="TRACE.ndjson", help="Where the trace goes.")],
    last: Annotated[str, typer.Option(help="How far back: 90s, 10m, 2h.")] = "10m",
    requests: Annotated[
        Path | None, typer.Option(help="The requests of a bench run (`--requests`), instead of a service's jobs.")
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="A profile: its ratio makes estimated tokens of those that were read.")
    ] = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Write a trace: when requests came, and how large they were."""
    from corelane.plugins.lab.planning.profile import load_profile

    if requests is not None:
        entries = from_requests(requests)
    else:
        ratio = 1.0 if profile is None else load_profile(profile).tokens_ratio
        entries = _from_service(url, api_key, seconds_of(last), ratio)
    if not entries:
        raise InvalidInput("no request came in that time")
    began_s = min(entry.at_s for entry in entries)
    shifted = [TraceEntry(entry.at_s - began_s, entry.items, entry.tokens) for entry in entries]
    write_trace(file, sorted(shifted, key=lambda entry: entry.at_s))
    error_console().print(f"wrote {len(entries):,} requests to {file}")


def from_requests(path: Path) -> list[TraceEntry]:
    """Return what a bench run offered, by when it was due; raise InvalidInput if a line cannot be read."""
    entries: list[TraceEntry] = []
    try:
        for line in path.read_bytes().splitlines():
            given = orjson.loads(line)
            entries.append(TraceEntry(float(given["intended_s"]), int(given["items"]), int(given["tokens"]) or None))
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(f"{path}, line {len(entries) + 1}: not a request of a bench run") from None
    return entries


def seconds_of(text: str) -> float:
    """Read a time such as `10m`; raise InvalidInput for another text."""
    match = SPAN.fullmatch(text.strip())
    if match is None:
        raise InvalidInput(f"{text!r} is no time such as 90s, 10m or 2h")
    return float(match[1]) * UNITS_S[match[2]]


def _from_service(url: str | None, api_key: str | None, seconds: float, ratio: float) -> list[TraceEntry]:
    since = datetime.now(UTC) - timedelta(seconds=seconds)
    entries = []
    with connect(url, api_key) as client:
        for job in client.iter_jobs(created_after=since):
            at_s = datetime.fromisoformat(job.created_at).timestamp()
            read = job.usage.tokens if job.usage is not None else None
            entries.append(TraceEntry(at_s, job.counts.total, None if read is None else round(read / ratio) or None))
    return entries
