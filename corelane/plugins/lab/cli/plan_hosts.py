"""``corelane plan hosts``: how many workers, and models, fit on each type of host."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from corelane.cli.output import make_table, print_line, print_table
from corelane.cli.service import JsonOption, KeyOption, ModelOption, UrlOption, connect
from corelane.errors import InvalidInput

if TYPE_CHECKING:
    from corelane.domain.instances import Instance
    from corelane.plugins.lab.planning.hosts import HostRoom

MB = 1_000_000


def hosts(
    model: ModelOption = "default",
    model_mb: Annotated[float | None, typer.Option(min=0.1, help="What it weighs; else the service says.")] = None,
    worker_mb: Annotated[float | None, typer.Option(min=1, help="Memory of a worker that holds it.")] = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how many workers of a model fit on each type of host, and what binds them."""
    from corelane.plugins.lab.planning.hosts import ModelWeight, rooms

    if model_mb is None:
        model_bytes, worker_bytes = _measured(model, url, api_key)
    else:
        model_bytes, worker_bytes = int(model_mb * MB), None
    weight = ModelWeight.of(model_bytes, int(worker_mb * MB) if worker_mb else worker_bytes)
    found = rooms(instances_table().values(), weight)
    if as_json:
        print_line([_plain(room) for room in found])
        return
    names = ("host", "cores", "vCPU", "GiB", "device GiB", "workers", "bound by", "models a core")
    table = make_table(*names, whole=("host",))
    for room in found:
        of = room.instance
        table.add_row(
            of.name,
            f"{of.cores}",
            f"{of.vcpu}",
            f"{of.host_gib:g}",
            f"{room.device_gib_per_core:.3g} a core",
            f"{room.workers}",
            room.binds,
            f"{room.models_per_core:,}",
        )
    print_table(table)
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
    """Return what a model and a worker that holds it weigh, as the service says."""
    from corelane.plugins.lab.cli.plan_calibrate import find_model

    with connect(url, api_key) as client:
        found = find_model(client.models(), model)
        held = [core["memory_bytes"] for core in client.cores() if found["id"] in core["versions"]]
    if not found["bytes"]:
        raise InvalidInput(f"the service does not know what {found['id']} weighs: give --model-mb")
    return found["bytes"], max((count for count in held if count), default=None)


def _plain(room: "HostRoom") -> dict[str, object]:
    of = room.instance
    return {
        "instance": of.name,
        "cores": of.cores,
        "vcpu": of.vcpu,
        "host_gib": of.host_gib,
        "device_gib_per_core": room.device_gib_per_core,
        "workers": room.workers,
        "bound_by": room.binds,
        "models_per_core": room.models_per_core,
    }
