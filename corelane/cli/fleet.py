"""``corelane cores`` and ``corelane models``: how the fleet is, and which versions it serves."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corelane.cli.errors import exit_on_error
from corelane.cli.output import make_table, print_line, print_table
from corelane.cli.service import JsonOption, KeyOption, UrlOption, connect
from corelane.domain.placement import MOST_REPLACED
from corelane.errors import InvalidInput, LoadFailed, NotReady

if TYPE_CHECKING:
    from corelane.client import Client

#: Cores are asked how far they are this often, in seconds: half a heartbeat.
LOOK_S = 0.5

#: A version that no core has begun to load by then is wanted nowhere, in seconds: several heartbeats.
BEGIN_S = 15

#: More versions than this that are ready on a core are counted, not named: `corelane models list` names them.
MOST_NAMED = 4

#: States of cores that nothing is to be expected of.
GONE = ("lost", "out_of_service")

CoreOption = Annotated[str, typer.Option(help="A core, host/index, or `all`.")]
WaitOption = Annotated[float, typer.Option("--wait", help="Seconds to wait until it is done; 0 returns at once.")]

models = typer.Typer(help="Versions of models: list, load, unload, move aliases.", no_args_is_help=True)


def cores(url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False) -> None:
    """Show the cores, how busy they are and what they hold."""
    with exit_on_error(), connect(url, api_key) as client:
        if as_json:
            for core in client.cores():
                print_line(core)
            return
        table = make_table("core", "state", "busy", "memory", "items", "models", whole=("core", "state"))
        for core in client.cores():
            lines = core_lines(core["models"])
            busy, memory = f"{core['busy_ratio']:.0%}", _size(core["memory_bytes"] or 0)
            table.add_row(core["core"], core["state"], busy, memory, f"{core['items']:,}", "\n".join(lines) or "-")
        print_table(table)


@models.command("list")
def list_models(url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False) -> None:
    """Show the versions, what means them, and who holds them."""
    with exit_on_error(), connect(url, api_key) as client:
        if as_json:
            for model in client.models():
                print_line(model)
            return
        table = make_table("version", "state", "aliases", "dtype", "size", "cores", "open jobs", whole=("version",))
        totals = {each["alias"]: sum(each["weights"].values()) for each in client.aliases()}
        for model in client.models():
            shares = [_share(alias, weight, totals.get(alias, 0)) for alias, weight in model["weights"].items()]
            held = ", ".join(model["cores"]) or model.get("waiting_for") or "none"
            row = (model["id"], model["state"], "\n".join(shares) or "-", model["dtype"], _size(model["bytes"]), held)
            table.add_row(*row, str(model["unfinished_jobs"]))
        print_table(table)


@models.command()
def load(
    model: Annotated[str, typer.Argument(help="A version, NAME@FINGERPRINT, or a name: its newest.")],
    core: CoreOption = "all",
    count: Annotated[int | None, typer.Option(help="On so many cores only.")] = None,
    lazy: Annotated[bool, typer.Option("--lazy", help="Load it once work first waits for it.")] = False,
    manifest: Annotated[str | None, typer.Option(help="SHA-256 that its manifest.json must have.")] = None,
    wait: WaitOption = 300,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Load a version on a core, or on all; what is served meanwhile goes on."""
    with exit_on_error(), connect(url, api_key) as client:
        placed = client.load_model(model, core, count=count, lazy=lazy, manifest_sha256=manifest)
        if wait and not lazy:
            held = _until_loaded(client, placed, core, wait, manifest)
            _tell(as_json, placed, f"{placed['version']} is ready on {', '.join(held)}", ready_on=held)
        else:
            _tell(as_json, placed, f"{placed['version']} is wanted; `corelane cores` says how far it is")


@models.command()
def reload(
    version: Annotated[str, typer.Argument(help="The version, NAME@FINGERPRINT.")],
    core: CoreOption = "all",
    manifest: Annotated[str | None, typer.Option(help="SHA-256 that its manifest.json must have from now on.")] = None,
    wait: WaitOption = 300,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Load a version anew where it is held: compiled or calibrated again in place. It is served meanwhile."""
    with exit_on_error(), connect(url, api_key) as client:
        placed = client.reload_model(version, core, manifest_sha256=manifest)
        if not wait:
            _tell(as_json, placed, f"{version} is to be loaded anew; `corelane cores` says how far it is")
            return
        held = _until_reloaded(client, placed, core, wait)
        _tell(as_json, placed, f"{version} is loaded anew on {', '.join(held)}", ready_on=held)


@models.command()
def unload(
    version: Annotated[str, typer.Argument(help="The version, NAME@FINGERPRINT.")],
    core: CoreOption = "all",
    force: Annotated[bool, typer.Option("--force", help="At once, even if an alias means it.")] = False,
    wait: WaitOption = 300,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Drain a version and unload it from a core, or from all."""
    with exit_on_error(), connect(url, api_key) as client:
        placed = client.unload_model(version, core, force=force)
        if not wait:
            _tell(as_json, placed, f"{version} leaves; `corelane cores` says how far it is")
            return
        deadline = time.monotonic() + wait
        while any(_states(client, version, core)):
            if time.monotonic() > deadline:
                raise NotReady(f"{version} still has work after {wait:g} s; it leaves once its last job is final")
            time.sleep(LOOK_S)
        _tell(as_json, placed, f"{version} is unloaded from {core}")


@models.command()
def alias(
    name: Annotated[str, typer.Argument(help="The alias, as `default`.")],
    versions: Annotated[list[str] | None, typer.Argument(help="VERSION, or several as VERSION=WEIGHT.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Forget it: it means again what the settings mean.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Even if no living core holds a version yet.")] = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an alias mean a version, or several by weight; without versions say what it means."""
    with exit_on_error(), connect(url, api_key) as client:
        if delete:
            found = client.unset_alias(name)
        elif versions:
            found = client.set_alias(name, read_weights(versions), force=force)
        else:
            nothing = {"object": "alias", "alias": name, "weights": {}, "is_set": False}
            found = next((each for each in client.aliases() if each["alias"] == name), nothing)
        if as_json:
            print_line(found)
            return
        weights = found["weights"]
        total = sum(weights.values())
        shares = [f"{version} ({weight / total:.0%})" for version, weight in weights.items()]
        typer.echo(f"{name} means {', '.join(shares) or 'nothing'}")


def _tell(as_json: bool, placed: Mapping[str, Any], sentence: str, ready_on: Sequence[str] | None = None) -> None:
    """What was asked for and has come of it: where the version is wanted now, as JSON, or a sentence."""
    if as_json:
        print_line(dict(placed) | ({} if ready_on is None else {"ready_on": list(ready_on)}))
    else:
        typer.echo(sentence)


def read_weights(versions: Sequence[str]) -> dict[str, float]:
    """Weights as they are typed; raises InvalidInput."""
    weights: dict[str, float] = {}
    for each in versions:
        version, equals, weight = each.partition("=")
        try:
            weights[version] = float(weight) if equals else 1.0
        except ValueError:
            raise InvalidInput(f"{each!r} is not VERSION=WEIGHT; write it as qa-minilm@3f2a94c1d07b=90") from None
    return weights


def _until_loaded(
    client: "Client", placed: Mapping[str, Any], core: str, wait_s: float, manifest: str | None
) -> list[str]:
    """The cores that hold a version once all that are to do; raises LoadFailed or NotReady."""
    began, version = time.monotonic(), placed["version"]
    while True:
        states = _states(client, version, core)
        living = [
            each["core"] for each in client.cores() if each["state"] not in GONE and core in ("all", each["core"])
        ]
        failed = _failures(states, placed)
        count = placed["count"] if core == "all" and placed["count"] else len(living)
        # Of so many cores, others are tried in the place of those where it failed.
        if failed and (count == len(living) or len(failed) > min(MOST_REPLACED, len(living) - count)):
            raise _load_failed(version, failed)
        ready = [
            name
            for name, model in states.items()
            if model["state"] == "ready" and manifest in (None, model["manifest_sha256"])
        ]
        if ready and len(ready) >= min(count, len(living)):
            return ready
        waited = time.monotonic() - began
        if waited > wait_s or (not states and waited > BEGIN_S):
            raise NotReady(f"{version} is ready on {len(ready)} cores after {waited:.0f} s; `corelane cores` says more")
        time.sleep(LOOK_S)


def _until_reloaded(client: "Client", placed: Mapping[str, Any], core: str, wait_s: float) -> list[str]:
    """The cores that hold a version once all have loaded it anew; raises LoadFailed or NotReady."""
    began, version = time.monotonic(), placed["version"]
    while True:
        states = {name: model for name, model in _states(client, version, core).items() if model["state"] != "lazy"}
        if failed := _failures(states, placed):
            raise _load_failed(version, failed)
        left = [name for name, model in states.items() if model["state"] != "ready" or not _follows(model, placed)]
        if states and not left:
            return list(states)
        waited = time.monotonic() - began
        if waited > wait_s or (not states and waited > BEGIN_S):
            where = f"is not loaded anew on {', '.join(left)}" if left else "is held nowhere"
            raise NotReady(f"{version} {where} after {waited:.0f} s; `corelane cores` says more")
        time.sleep(LOOK_S)


def _follows(model: Mapping[str, Any], placed: Mapping[str, Any]) -> bool:
    """Whether a core says this of what was asked for, and not of something before."""
    return (model["asked_at"] or "") >= str(placed["asked_at"])


def _failures(states: Mapping[str, Mapping[str, Any]], placed: Mapping[str, Any]) -> dict[str, str]:
    """Why what was asked for failed, by core; one that goes on with what it had counts."""
    return {name: model["reason"] for name, model in states.items() if model["reason"] and _follows(model, placed)}


def _load_failed(version: str, failed: Mapping[str, str]) -> LoadFailed:
    return LoadFailed(f"{version} does not load on {', '.join(failed)}: {'; '.join(dict.fromkeys(failed.values()))}")


def _states(client: "Client", version: str, core: str) -> dict[str, dict[str, Any]]:
    """How each core, or one, stands with a version."""
    return {
        each["core"]: model
        for each in client.cores()
        if each["state"] not in GONE and core in ("all", each["core"])
        for model in each["models"]
        if model["version"] == version
    }


def core_lines(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each version on a core; of many that are ready and well only how many there are."""
    well = [model for model in models if model["state"] == "ready" and not model["reason"]]
    if len(well) <= MOST_NAMED:
        return [_core_line(model) for model in models]
    total = sum(model["bytes"] for model in well)
    return [f"{len(well)} ready, {_size(total)}", *(_core_line(model) for model in models if model not in well)]


def _core_line(model: Mapping[str, Any]) -> str:
    if model["reason"]:
        return f"{model['version']} {model['state']}: {model['reason']}"
    weight = f" {model['dtype']} {_size(model['bytes'])}" if model["dtype"] else ""
    return f"{model['version']} {model['state']}{weight}"


def _share(alias: str, weight: float, total: float) -> str:
    return alias if weight >= total else f"{alias} ({weight / total:.0%})"


def _size(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
