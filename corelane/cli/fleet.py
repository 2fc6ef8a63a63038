"""``corelane cores`` and ``corelane models``: the state of the fleet, and the versions it serves."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corelane.cli.commands import CommandGroup
from corelane.cli.output import print_list, print_sentence
from corelane.cli.service import JsonOption, ServiceClient
from corelane.errors import InvalidInput, LoadFailed, NotReady

if TYPE_CHECKING:
    from corelane.client import Client

#: Time between two polls of the cores, in seconds: half a heartbeat.
POLL_S = 0.5

#: A version that no core has begun to load after this time will not be loaded, in seconds: several heartbeats.
BEGIN_S = 15

#: If a core holds more ready versions than this, they are counted and not named; `corelane models list` names them.
MOST_NAMED = 4

#: States of cores that will not load anything.
GONE = ("lost", "out_of_service")

CoreOption = Annotated[str, typer.Option(help="A core, host/index, or `all`.")]
WaitOption = Annotated[float, typer.Option("--wait", help="Seconds to wait until it is done; 0 returns at once.")]
VersionArgument = Annotated[str, typer.Argument(help="A version, NAME@FINGERPRINT, or a name that one version has.")]

models = CommandGroup(help="Versions of models: list, load, unload, move aliases, package.", no_args_is_help=True)


def cores(client: ServiceClient, as_json: JsonOption = False) -> None:
    """Show the cores, how busy they are and which models they hold."""

    def row(core: Mapping[str, Any]) -> tuple[str, ...]:
        lines = "\n".join(core_lines(core["models"], core.get("cpu_kind"))) or "-"
        busy, memory = f"{core['busy_ratio']:.0%}", _size(core["memory_bytes"] or 0)
        return core["core"], core["state"], busy, memory, f"{core['items']:,}", lines

    columns = ("core", "state", "busy", "memory", "items", "models")
    print_list(client.cores(), columns, row, whole=("core", "state", "models"), as_json=as_json)


@models.command("list")
def list_models(client: ServiceClient, as_json: JsonOption = False) -> None:
    """Show the versions, their aliases, and the cores that hold them."""
    totals = {} if as_json else {each["alias"]: sum(each["weights"].values()) for each in client.aliases()}

    def row(model: Mapping[str, Any]) -> tuple[str, ...]:
        shares = [_share(alias, weight, totals.get(alias, 0)) for alias, weight in model["weights"].items()]
        held = ", ".join(model["cores"]) or model.get("waiting_for") or "none"
        names = (model["id"], model.get("task", "-"), model["state"], "\n".join(shares) or "-", model["dtype"])
        return *names, _size(model["bytes"]), held, str(model["unfinished_jobs"])

    columns = ("version", "task", "state", "aliases", "dtype", "size", "cores", "open jobs")
    print_list(client.models(), columns, row, whole=("version",), as_json=as_json)


@models.command()
def load(
    client: ServiceClient,
    model: Annotated[str, typer.Argument(help="A version, NAME@FINGERPRINT, or a name: its newest.")],
    core: CoreOption = "all",
    manifest: Annotated[str | None, typer.Option(help="SHA-256 that its manifest.json must have.")] = None,
    wait: WaitOption = 300,
    as_json: JsonOption = False,
) -> None:
    """Load a version on a core, or on all; other versions are served meanwhile."""
    placed = client.load_model(model, core, manifest_sha256=manifest)
    if wait:

        def is_named(model: Mapping[str, Any]) -> bool:
            return manifest in (None, model["manifest_sha256"])

        held = _until_ready(client, placed, core, wait, is_named, everywhere=True)
        print_sentence(placed | {"ready_on": held}, as_json, f"{placed['version']} is ready on {', '.join(held)}")
    else:
        print_sentence(placed, as_json, f"{placed['version']} is wanted; `corelane cores` shows the progress")


@models.command()
def reload(
    client: ServiceClient,
    version: VersionArgument,
    core: CoreOption = "all",
    manifest: Annotated[str | None, typer.Option(help="SHA-256 that its manifest.json must have from now on.")] = None,
    wait: WaitOption = 300,
    as_json: JsonOption = False,
) -> None:
    """Load a version again where it is held, after compiling or calibrating in place. It is served meanwhile."""
    placed = client.reload_model(version, core, manifest_sha256=manifest)
    version = placed["version"]
    if wait:
        held = _until_ready(client, placed, core, wait, partial(_follows, placed=placed), everywhere=False)
        print_sentence(placed | {"ready_on": held}, as_json, f"{version} is loaded again on {', '.join(held)}")
    else:
        print_sentence(placed, as_json, f"{version} will be loaded again; `corelane cores` shows the progress")


@models.command()
def unload(
    client: ServiceClient,
    version: VersionArgument,
    core: CoreOption = "all",
    force: Annotated[bool, typer.Option("--force", help="At once, even if an alias means it.")] = False,
    wait: WaitOption = 300,
    as_json: JsonOption = False,
) -> None:
    """Drain a version and unload it from a core, or from all."""
    placed = client.unload_model(version, core, force=force)
    version = placed["version"]
    if not wait:
        print_sentence(placed, as_json, f"{version} will be unloaded; `corelane cores` shows the progress")
        return
    deadline = time.monotonic() + wait
    while _states(_living(client, core), version):
        if time.monotonic() > deadline:
            raise NotReady(f"{version} still has work after {wait:g} s; it is unloaded once its last job is final")
        time.sleep(POLL_S)
    print_sentence(placed, as_json, f"{version} is unloaded from {core}")


@models.command()
def alias(
    client: ServiceClient,
    name: Annotated[str, typer.Argument(help="The alias, as `default`.")],
    versions: Annotated[list[str] | None, typer.Argument(help="VERSION or NAME, or several: VERSION=WEIGHT.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove it: it means again what the settings mean.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Even if no living core holds a version yet.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make an alias mean a version, or several by weight; without versions show what it means."""
    if delete:
        found = client.unset_alias(name)
    elif versions:
        found = client.set_alias(name, read_weights(versions), force=force)
    else:
        nothing = {"object": "alias", "alias": name, "weights": {}, "is_set": False}
        found = next((each for each in client.aliases() if each["alias"] == name), nothing)
    total = sum(found["weights"].values())
    shares = [f"{version} ({weight / total:.0%})" for version, weight in found["weights"].items()]
    print_sentence(found, as_json, f"{name} means {', '.join(shares) or 'nothing'}")


def read_weights(versions: Sequence[str]) -> dict[str, float]:
    """Return the weights given as arguments; raise InvalidInput for a malformed one."""
    weights: dict[str, float] = {}
    for each in versions:
        version, equals, weight = each.partition("=")
        try:
            weights[version] = float(weight) if equals else 1.0
        except ValueError:
            raise InvalidInput(f"{each!r} is not VERSION=WEIGHT; write it as qa-minilm@3f2a94c1d07b=90") from None
    return weights


def _until_ready(
    client: "Client",
    placed: Mapping[str, Any],
    core: str,
    wait_s: float,
    is_new: Callable[[Mapping[str, Any]], bool],
    *,
    everywhere: bool,
) -> list[str]:
    """Return the cores on which a version is ready and ``is_new`` takes it, once these are all that know the version.

    With ``everywhere`` they must be all that live. Raises LoadFailed if a core failed, NotReady when time is over.
    """
    version, began = placed["version"], time.monotonic()
    while True:
        living = _living(client, core)
        states = _states(living, version)
        # A core that kept its earlier version has failed too.
        if failed := {name: model for name, model in states.items() if model["reason"] and _follows(model, placed)}:
            reasons = dict.fromkeys(model["reason"] for model in failed.values())
            raise LoadFailed(f"{version} does not load on {', '.join(failed)}: {'; '.join(reasons)}")
        ready = [name for name, model in states.items() if model["state"] == "ready" and is_new(model)]
        wanted = len(living if everywhere else states)
        if ready and len(ready) == wanted:
            return ready
        waited = time.monotonic() - began
        if waited > wait_s or (not states and waited > BEGIN_S):
            told = f"{version} is ready on {len(ready)} of {wanted} cores after {waited:.0f} s"
            raise NotReady(f"{told}; `corelane cores` says more")
        time.sleep(POLL_S)


def _follows(model: Mapping[str, Any], placed: Mapping[str, Any]) -> bool:
    """Return whether a core's report is about this request, and not about an earlier one."""
    return (model["asked_at"] or "") >= str(placed["asked_at"])


def _living(client: "Client", core: str) -> list[dict[str, Any]]:
    """Return the living cores, or the one of this name if it lives."""
    return [each for each in client.cores() if each["state"] not in GONE and core in ("all", each["core"])]


def _states(cores: Iterable[Mapping[str, Any]], version: str) -> dict[str, Mapping[str, Any]]:
    """Return what each core reports about a version, for cores that know it."""
    return {each["core"]: model for each in cores for model in each["models"] if model["version"] == version}


def core_lines(models: Sequence[Mapping[str, Any]], cpu_kind: str | None = None) -> list[str]:
    """Return a line for each version on a core. Many healthy ready versions share one line with their count.

    If an artifact is for another kind of CPU than the core's, its line says so.
    """
    healthy = [model for model in models if model["state"] == "ready" and not model["reason"]]
    if len(healthy) <= MOST_NAMED:
        return [_core_line(model, cpu_kind) for model in models]
    total = sum(model["bytes"] for model in healthy)
    return [
        f"{len(healthy)} ready, {_size(total)}",
        *(_core_line(model, cpu_kind) for model in models if model not in healthy),
    ]


def _core_line(model: Mapping[str, Any], cpu_kind: str | None) -> str:
    if model["reason"]:
        return f"{model['version']} {model['state']}: {model['reason']}"
    weight = f" {model['dtype']} {_size(model['bytes'])}" if model["dtype"] else ""
    chosen_for = model.get("cpu_kind")
    other = f", chosen for {chosen_for}" if chosen_for and cpu_kind and chosen_for != cpu_kind else ""
    return f"{model['version']} {model['state']}{weight}{other}"


def _share(alias: str, weight: float, total: float) -> str:
    return alias if weight >= total else f"{alias} ({weight / total:.0%})"


def _size(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
