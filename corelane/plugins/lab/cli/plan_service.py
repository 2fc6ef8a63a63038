"""The data that ``corelane plan`` takes from a running service: a core's profile, a trace of jobs, a model's size."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.table import Table

from corelane.cli.output import error_console, make_table, print_fields, print_line, print_table
from corelane.cli.service import JsonOption, KeyOption, ModelOption, UrlOption, connect
from corelane.domain.jobs import DEFAULT_TASK
from corelane.errors import InvalidInput
from corelane.plugins.lab.arrivals import UNITS_S
from corelane.plugins.lab.traces import TraceEntry, write_trace

if TYPE_CHECKING:
    from corelane.domain.instances import Instance
    from corelane.plugins.lab.planning.profile import Profile
    from corelane.plugins.lab.workload import Workload

#: How long the service is measured, in seconds.
PROFILE_S = 30.0

#: The default items of a profile: their lengths and number.
LENGTHS, ITEMS = "words=uniform(20,200)", 40

#: A time such as `90s`, `10m` or `2h`.
TIME = re.compile(r"(\d+(?:\.\d+)?)(s|m|h)")

MB = 1_000_000

#: The columns of a table: the field of each row, and its format.
Columns = dict[str, tuple[str, Callable[[Any], str]]]

HOST_COLUMNS: Columns = {
    "host": ("instance", str),
    "cores": ("cores", str),
    "vCPU": ("vcpu", str),
    "GiB": ("host_gib", "{:g}".format),
    "device GiB": ("device_gib_per_core", "{:.3g} a core".format),
    "workers": ("workers", str),
    "bound by": ("bound_by", str),
    "models a core": ("models_per_core", "{:,}".format),
}


def table_of(rows: Iterable[Mapping[str, Any]], columns: Columns) -> Table:
    """Return rows as a table."""
    table = make_table(*columns, whole=("host",))
    for row in rows:
        table.add_row(*(show(row[name]) for name, show in columns.values()))
    return table


def profile(
    file: Annotated[Path, typer.Argument(metavar="FILE.json", help="Where the profile goes.")],
    mix: Annotated[Path | None, typer.Option(help="Items to ask: SQuAD's layout, or lines of JSON.")] = None,
    model: ModelOption = "default",
    seconds: Annotated[float, typer.Option(min=1, help="How long the service is measured.")] = PROFILE_S,
    instance: Annotated[str | None, typer.Option(help="The type of host that it runs on.")] = None,
    cpus: Annotated[int | None, typer.Option(min=1, help="CPUs of that host; this machine's, if it is here.")] = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure one core of an idle service, and write its profile."""
    found = measure(url, api_key, model, mix, seconds, instance=instance, cpus=cpus)
    file.write_text(found.model_dump_json(indent=2, by_alias=True) + "\n")
    if as_json:
        print_line(found)
    else:
        print_fields(fields(found))


def measure(
    url: str | None,
    api_key: str | None,
    model: str,
    mix: Path | None,
    seconds: float,
    *,
    instance: str | None = None,
    cpus: int | None = None,
) -> "Profile":
    """Measure a service; report each step on standard error."""
    from corelane.plugins.lab.machine import task_of
    from corelane.plugins.lab.planning.measure import take_profile
    from corelane.plugins.lab.planning.profile import BatchLimits
    from corelane.plugins.lab.senders import Target
    from corelane.settings import read_settings

    settings = read_settings()
    key = api_key or (settings.api_key.get_secret_value() if settings.api_key is not None else None)
    console = error_console()
    with connect(url, key) as client:
        target = Target(client.base_url, key, model)
        target = replace(target, task=task_of(target))
        return take_profile(
            client,
            target,
            workload_of(mix, target.task),
            seconds=seconds,
            limits=BatchLimits(latency_target_s=settings.latency_target_s, slice_tokens=settings.slice_tokens),
            cpus=cpus,
            instance=instance or settings.instance,
            on_step=lambda name, for_s: console.print(f"measuring {name}: {for_s:.0f} s"),
        )


def workload_of(mix: Path | None, task: str = DEFAULT_TASK) -> "Workload":
    """Return the items of a file, or generated ones of evenly spread lengths."""
    from corelane.plugins.lab.synthetic import make_items
    from corelane.plugins.lab.workload import read_file

    return make_items(LENGTHS, ITEMS, task=task) if mix is None else read_file(mix, task=task)


def fields(found: "Profile") -> dict[str, object]:
    """Return the fields of a profile for readers."""
    seen = found.contention
    shapes = ", ".join(
        f"{shape.rows}x{shape.length} {1000 * found.batch_s(shape.length, 1):.1f}"
        f"–{1000 * found.batch_s(shape.length, shape.rows):.1f}"
        for shape in found.shapes
    )
    return {
        "version": found.version,
        "target": " ".join(filter(None, (found.target, found.dtype, found.instance))),
        "batches": f"{shapes} ms with one row and full",
        "around": f"{1000 * found.overhead.mean_s:.1f} ms, {1000 * seen.overhead.mean_s:.1f} with all cores at work",
        "stretch": f"{seen.stretch:.2f} with {seen.cores} cores at work at {seen.requests_per_s:.1f} requests/s",
        "tokens": f"{found.tokens_ratio:.2f} for each one estimated",
    }


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
    """Write a trace: when requests came, and how large they were.

    Jobs that were deleted, or are kept no longer, are not in it.
    """
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
    """Return the load that a bench run offered, by due time; raise InvalidInput if a line cannot be read."""
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
    match = TIME.fullmatch(text.strip())
    if match is None:
        raise InvalidInput(f"{text!r} is no time such as 90s, 10m or 2h")
    return float(match[1]) * UNITS_S[match[2]]


def _from_service(url: str | None, api_key: str | None, seconds: float, ratio: float) -> list[TraceEntry]:
    """Return a service's jobs of the last seconds. ``ratio`` turns their real tokens into a trace's estimates."""
    since = datetime.now(UTC) - timedelta(seconds=seconds)
    entries = []
    with connect(url, api_key) as client:
        for job in client.iter_jobs(created_after=since):
            at_s = datetime.fromisoformat(job.created_at).timestamp()
            read = job.usage.tokens if job.usage is not None else None
            entries.append(TraceEntry(at_s, job.counts.total, None if read is None else round(read / ratio) or None))
    return entries


def hosts(
    model: ModelOption = "default",
    model_mb: Annotated[float | None, typer.Option(min=0.1, help="What it weighs; else the service says.")] = None,
    worker_mb: Annotated[float | None, typer.Option(min=1, help="Memory of a worker that holds it.")] = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how many workers of a model fit on each type of host, and what binds them."""
    from corelane.plugins.lab.planning.hosts import ModelWeight, room_on

    if model_mb is None:
        model_bytes, worker_bytes = _measured(model, url, api_key)
    else:
        model_bytes, worker_bytes = int(model_mb * MB), None
    weight = ModelWeight.of(model_bytes, int(worker_mb * MB) if worker_mb else worker_bytes)
    found = [room_on(instance, weight) for instance in instances_table().values() if instance.cores]
    rows = [
        {
            "instance": room.instance.name,
            **{name: getattr(room.instance, name) for name in ("cores", "vcpu", "host_gib")},
            **{name: getattr(room, name) for name in ("device_gib_per_core", "workers", "models_per_core")},
            "bound_by": room.binds,
        }
        for room in found
    ]
    if as_json:
        print_line(rows)
        return
    print_table(table_of(rows, HOST_COLUMNS))
    typer.echo(f"A worker holds {weight.worker_bytes / MB:,.0f} MB, the model {weight.device_bytes / MB:,.0f} MB.")


def instances_table() -> "dict[str, Instance]":
    """Return all types of host by name, with the prices of this process' settings."""
    from corelane.domain.prices import all_instances, host_price, read_prices
    from corelane.settings import read_settings

    settings = read_settings()
    table = all_instances(read_prices(settings.prices_file) if settings.prices_file is not None else None)
    here = host_price(settings)
    return table | {here.instance.name: replace(here.instance, usd_per_hour=here.per_hour)}


def _measured(model: str, url: str | None, api_key: str | None) -> tuple[int, int | None]:
    """Return the bytes of a model and of a worker that holds it, as the service reports them."""
    from corelane.plugins.lab.machine import find_model

    with connect(url, api_key) as client:
        found = find_model(client.models(), model)
        held = [core["memory_bytes"] for core in client.cores() if found["id"] in core["versions"]]
    if not found["bytes"]:
        raise InvalidInput(f"the service does not know what {found['id']} weighs: give --model-mb")
    return found["bytes"], max((count for count in held if count), default=None)
