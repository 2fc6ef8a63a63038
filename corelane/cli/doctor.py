"""``corelane doctor``: whether this machine can run Corelane, and what to do if not.

Changes nothing. Each check gives ✓ (fine), ! (works, but read the advice) or ✗ (``corelane serve`` cannot work, or its
protection is not in force); exit code 1 if any check gives ✗.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import typer
from pydantic import SecretStr
from rich.console import Console
from rich.table import Table
from rich.text import Text

from corelane.artifacts.calibration import read_calibration
from corelane.artifacts.finding import find_artifact
from corelane.artifacts.instructions import host_kind
from corelane.artifacts.manifest import COMPILE_HERE, missing_instructions, model_name, outgrown
from corelane.cli.checks import PROBE_TIMEOUT_S, DoctorCheck, check_redis, check_replicas, check_storage
from corelane.cli.folders import DataOption, nearest_existing
from corelane.cli.keys import running_redis
from corelane.cli.output import print_line
from corelane.cli.ports import port_is_free
from corelane.cli.service import JsonOption
from corelane.domain.addresses import local_url
from corelane.engine.backends.added import TORCHSCRIPT, AddedFormat, added_formats
from corelane.engine.backends.neuron.chips import CHIPS
from corelane.engine.backends.neuron.devices import TOOLS, find_tool
from corelane.engine.cores import core_slots
from corelane.errors import ArtifactRefused, InvalidInput, ServiceError, SetupError, Unavailable
from corelane.errors.extras import install_command
from corelane.settings import Settings, read_settings, unknown_names
from corelane.settings.names import UnknownName

#: Room for an artifact with its buckets, a rewrite of Redis's append-only file, and logs.
WANTED_DISK_BYTES = 2 * 1024**3

#: Longest wait for the import of torch, in seconds: from a cold disk it takes long.
TORCH_TIMEOUT_S = 120

#: Run in another process: torch is slow to import, and a broken one may crash its process.
TORCH_PROBE = """
import json, time, torch
torch.set_num_threads(1)
def seconds(dtype):
    square = torch.randn(384, 384).to(dtype)
    def once():
        started = time.perf_counter()
        for _ in range(3):
            square @ square
        return time.perf_counter() - started
    return min(once() for _ in range(6))
print(json.dumps([torch.__version__, seconds(torch.float32) / seconds(torch.bfloat16)]))
"""

#: Advice for callers without a key.
MAKE_KEY = "`corelane keys create` makes one"

SYMBOLS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}


def doctor(data: DataOption = None, as_json: JsonOption = False) -> None:
    """Check whether this machine can run Corelane, and say what to do if not."""
    settings = read_settings(data_dir=data)
    if "redis_url" not in settings.model_fields_set and (running := running_redis(settings.data_dir)):
        settings = settings.model_copy(update={"redis_url": running})
    with Console(stderr=True).status("checking …"):
        checks = [check(settings) for check in all_checks()]
    is_fit = all(check.state != "fail" for check in checks)
    if as_json:
        print_line({"ok": is_fit, "checks": [asdict(check) for check in checks]})
    else:
        Console(highlight=False).print(render(checks))
    if not is_fit:
        raise typer.Exit(1)


def render(checks: list[DoctorCheck]) -> Table:
    """Return the checks for readers, each with its advice below."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        symbol, style = SYMBOLS[check.state]
        found = Text(check.found)
        if check.advice:
            found.append(f"\n→ {check.advice}", style="dim")
        table.add_row(Text(symbol, style=style), Text(check.name, style="bold"), found)
    return table


def check_python(_: Settings) -> DoctorCheck:
    """Report the interpreter."""
    return DoctorCheck("Python", "ok", f"{platform.python_version()} ({sys.executable})")


def check_names(_: Settings) -> DoctorCheck:
    """Find variables that resemble settings and have no effect."""
    return judge_names(unknown_names())


def judge_names(unknown: list[UnknownName]) -> DoctorCheck:
    """Warn of mistyped names; fail if one of them was meant to protect the service."""
    if not unknown:
        return DoctorCheck("settings", "ok", "no variable is mistyped")
    found = f"without effect: {', '.join(each.name for each in unknown)}"
    advice = "\n→ ".join(each.sentence for each in unknown)
    return DoctorCheck("settings", "fail" if any(each.guards for each in unknown) else "warn", found, advice)


def check_torch(_: Settings, code: str = TORCH_PROBE) -> DoctorCheck:
    """Find out in which number format torch multiplies faster; ``code`` prints torch's version and a ratio as JSON."""
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TORCH_TIMEOUT_S, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        found = f"not imported within {TORCH_TIMEOUT_S} s"
        return DoctorCheck("torch", "fail", found, "try `python -c 'import torch'`")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"])[-1]
        return DoctorCheck("torch", "fail", last, f"run `{install_command('worker')}`")
    version, ratio = json.loads(done.stdout)
    faster = "bf16" if ratio > 1 else "fp32"
    found = f"{version}; bf16 multiplies {ratio:.1f} times as fast as fp32: {faster} suits this CPU"
    return DoctorCheck("torch", "ok", found)


def check_cores(settings: Settings) -> DoctorCheck:
    """Count the cores of the target: CPUs that this process may use, or Neuron cores."""
    if settings.target in CHIPS:
        return _check_neuron(settings)
    allowed, present = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    found = f"{allowed} CPU cores" + (f" of {present} may be used" if allowed < present else "")
    if allowed < 2:
        return DoctorCheck("cores", "warn", found, "the worker shares its core with the API and Redis; two are better")
    return DoctorCheck("cores", "ok", found)


def _check_neuron(settings: Settings) -> DoctorCheck:
    try:
        slots = core_slots(settings)
    except SetupError as error:
        return DoctorCheck("cores", "fail", error.detail, "`neuron-ls` shows what the driver sees")
    if settings.target == "inf1" and shutil.which(settings.neuron_python) is None:
        found = f"{settings.neuron_python}, in which cores of inf1 run, is not here"
        advice = "set CORELANE_NEURON_PYTHON to the Python that has torch-neuron: docs/04-targets.md"
        return DoctorCheck("cores", "fail", found, advice)
    visible = ", ".join(slot.environment["NEURON_RT_VISIBLE_CORES"] for slot in slots)
    found = f"{len(slots)} workers, on Neuron cores {visible}"
    if find_tool("neuron-monitor") is None:
        advice = f"install aws-neuronx-tools, which has neuron-monitor, or put it on PATH or in {TOOLS}"
        return DoctorCheck("cores", "warn", f"{found}; their utilisation and memory will not be known", advice)
    return DoctorCheck("cores", "ok", found)


def check_service(settings: Settings) -> DoctorCheck:
    """Find problems of a running service: lost cores, parts that keep failing, work that is not done."""
    try:
        from corelane.store.health_issues import find_issues
        from corelane.store.link.blocking import Link

        with closing(Link(settings.redis_url, PROBE_TIMEOUT_S)) as link:
            issues = link.read(find_issues)
    except (ImportError, Unavailable, ValueError):
        return DoctorCheck("service", "ok", "no Redis to ask")
    if not issues:
        found = "webhooks, sweeps, feeding and batches are on time, and there is no health issue"
        return DoctorCheck("service", "ok", found)
    found = "\n".join(f"{issue.part}: {issue.text}" for issue in issues)
    return DoctorCheck("service", "warn", found, "`serve` shows the log of its parts; `corelane top` shows more")


def check_api_port(settings: Settings) -> DoctorCheck:
    """Check that the API's port is free or Corelane's."""
    find = partial(find_corelane, settings.api_key)
    return judge_port("API port", settings.host, settings.port, "CORELANE_PORT", find)


def check_flower_port(settings: Settings) -> DoctorCheck:
    """Check that Flower's port is free or Flower's."""
    return judge_port("Flower port", settings.flower_host, settings.flower_port, "CORELANE_FLOWER_PORT", find_flower)


def judge_port(name: str, host: str, port: int, variable: str, find: Callable[[str], tuple[str, str]]) -> DoctorCheck:
    """Warn if another program has the port: ``serve`` then does not start.

    ``find`` returns the part of Corelane that replies at an address, or an empty string, and advice.
    """
    if port == 0 or port_is_free(host, port):
        return DoctorCheck(name, "ok", f"{port} is free" if port else "any that is free")
    found, advice = find(local_url(host, port))
    if found:
        return DoctorCheck(name, "warn" if advice else "ok", f"{port}: {found}", advice)
    advice = f"end what listens there (`ss -ltnp`), or set {variable}"
    return DoctorCheck(name, "warn", f"{port} is in use by something else", advice)


def find_corelane(api_key: SecretStr | None, url: str) -> tuple[str, str]:
    """Return Corelane's reply at this address, empty for another server, and advice if the key was refused."""
    from corelane.client import FOREIGN, Client

    key = None if api_key is None else api_key.get_secret_value()
    try:
        with Client(url, key, timeout_s=PROBE_TIMEOUT_S, patience_s=0) as client:
            return f"Corelane replies; cores: {len(client.cores())}", ""
    except ServiceError as error:
        if error.problem_code == FOREIGN:
            return "", ""
        if error.status != HTTPStatus.UNAUTHORIZED:
            return f"Corelane replies: {error.detail}", ""
        if api_key is None:
            return "Corelane replies, and requires an API key", f"set CORELANE_API_KEY to one; {MAKE_KEY}"
        return "Corelane replies, and refuses the key in CORELANE_API_KEY", f"{error.detail}; {MAKE_KEY}"
    except (Unavailable, InvalidInput):
        return "", ""


def find_flower(url: str) -> tuple[str, str]:
    """Return a sentence if Flower listens at this address, or else an empty string. The advice is always empty."""
    import httpx2

    with suppress(httpx2.HTTPError):
        response = httpx2.get(f"{url}/healthcheck", timeout=PROBE_TIMEOUT_S, trust_env=False)
        return "Flower replies" if response.headers.get("Server", "").startswith("TornadoServer") else "", ""
    return "", ""


def check_disk(settings: Settings) -> DoctorCheck:
    """Check the free space of the data folder, and that it can be written."""
    folder = settings.data_dir.resolve()
    existing = nearest_existing(folder)
    can_write = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    return judge_disk(folder, shutil.disk_usage(existing).free, can_write)


def judge_disk(folder: Path, free_bytes: int, is_writable: bool) -> DoctorCheck:
    """Warn if there is little space; fail if the folder cannot be written."""
    other = "choose another folder with --data or CORELANE_DATA_DIR"
    if not is_writable:
        return DoctorCheck("disk", "fail", f"{folder} cannot be written", other)
    advice = f"free 2 GiB, or {other}" if free_bytes < WANTED_DISK_BYTES else ""
    found = f"{free_bytes / 1024**3:,.1f} GiB free for {folder}"
    return DoctorCheck("disk", "warn" if advice else "ok", found, advice)


def check_artifact(settings: Settings) -> DoctorCheck:
    """Check whether the default model is compiled, and whether its scores are probabilities."""
    try:
        kind = host_kind(settings.cpu_kind)
        artifact = find_artifact(settings.artifact_root, model_name(settings.model), settings.target, kind=kind)
    except ArtifactRefused:
        found = f"{settings.model} is not compiled for {settings.target} yet below {settings.artifact_root}"
        advice = "`corelane serve` compiles it at its first start, `corelane compile` now; --data names another folder"
        return DoctorCheck("model", "warn", found, advice)
    manifest = artifact.manifest
    found = f"{manifest.version_id} for {manifest.task}, {manifest.dtype}, {len(manifest.buckets)} buckets"
    readable = [TORCHSCRIPT, *(name for name, format in added_formats().items() if format.is_installed)]
    if manifest.format not in readable:
        found += f", of format {manifest.format}, whose library is not installed"
        return DoctorCheck("model", "fail", found, f"run `{install_command(manifest.format)}`")
    try:
        calibration = read_calibration(artifact.path, manifest.version)
    except ArtifactRefused as error:
        return DoctorCheck("model", "fail", f"{found}; it does not load: its calibration is refused", error.detail)
    state: Literal["ok", "warn"] = "ok"
    if missing := missing_instructions(manifest):
        state = "warn"
        found += f"; chosen on a CPU with {', '.join(missing)}, which this one lacks"
    elif outgrown(manifest, kind):
        found += f", chosen on {manifest.cpu_kind}: for this CPU, {kind}, another dtype may be faster"
        found += f" (`corelane compile {settings.model} --cpu-kind this`)"
    how = "not calibrated: its scores are no probabilities" if calibration is None else calibration.described
    return DoctorCheck("model", state, f"{found}; {how}", COMPILE_HERE if missing else "")


def check_format(format: AddedFormat, _: Settings) -> DoctorCheck:
    """Report the optional library of a format of artifacts."""
    found = f"not installed; `{install_command(format.name)}` lets `corelane compile` try it where results are known"
    if format.is_installed:
        found = f"{version(format.library)}, for artifacts of format {format.name}"
    return DoctorCheck(format.name, "ok", found)


CHECKS: tuple[Callable[[Settings], DoctorCheck], ...] = (
    check_python,
    check_names,
    check_torch,
    check_cores,
    check_redis,
    check_replicas,
    check_service,
    check_api_port,
    check_flower_port,
    check_disk,
    check_storage,
    check_artifact,
)


def all_checks() -> list[Callable[[Settings], DoctorCheck]]:
    """Return the checks of every installation, then those of the formats that plugins add."""
    return [*CHECKS, *(partial(check_format, format) for format in added_formats().values())]
