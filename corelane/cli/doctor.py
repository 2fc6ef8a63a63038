"""``corelane doctor``: whether this machine can run Corelane, and what to do if not.

A check gives ✓ (fine), ! (works, but read the advice) or ✗ (``corelane serve`` cannot work or protect); any ✗ exits 1.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Literal

import typer
from rich.console import Console
from rich.text import Text

from corelane.artifacts.calibration import read_calibration
from corelane.artifacts.finding import find_artifact
from corelane.artifacts.instructions import host_kind
from corelane.artifacts.manifest import COMPILE_HERE, missing_instructions, model_name
from corelane.cli.compile import shown_trial
from corelane.cli.folders import DataOption, nearest_existing
from corelane.cli.keys import running_redis
from corelane.cli.output import print_line
from corelane.cli.ports import port_is_free
from corelane.cli.redis_server import find_server
from corelane.cli.service import JsonOption
from corelane.engine.backends.plugin import TORCHSCRIPT, added_formats, added_targets
from corelane.errors import ArtifactRefused, SetupError, StorageFailed, StoreUnavailable, Unavailable
from corelane.errors.extras import install_command
from corelane.settings import Settings, read_settings, unknown_names
from corelane.settings.address import local_url
from corelane.settings.names import UnknownName
from corelane.settings.rules import without_password

#: Longest wait for a service on this machine, in seconds; it normally replies in milliseconds.
PROBE_TIMEOUT_S = 3

State = Literal["ok", "warn", "fail"]
SYMBOLS: dict[State, tuple[str, str]] = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The result of one check, and what to do about it."""

    name: str
    state: State
    found: str
    advice: str = ""


def doctor(data: DataOption = None, as_json: JsonOption = False) -> None:
    """Check whether this machine can run Corelane, and say what to do if not."""
    settings = read_settings(data_dir=data)
    if "redis_url" not in settings.model_fields_set and (running := running_redis(settings.data_dir)):
        settings = settings.model_copy(update={"redis_url": running})
    with Console(stderr=True).status("checking …"):
        checks = [check(settings) for check in CHECKS]
    is_fit = all(check.state != "fail" for check in checks)
    if as_json:
        print_line({"ok": is_fit, "checks": [asdict(check) for check in checks]})
    else:
        show(checks)
    raise typer.Exit(0 if is_fit else 1)


def show(checks: list[DoctorCheck]) -> None:
    """Print the checks for readers, each with its advice below."""
    console = Console(highlight=False, soft_wrap=True)
    for check in checks:
        symbol, style = SYMBOLS[check.state]
        console.print(Text.assemble((symbol, style), (f"  {check.name:<8}  ", "bold"), check.found))
        if check.advice:
            console.print(Text(f"   → {check.advice}", style="dim"))


def judge_names(unknown: list[UnknownName]) -> DoctorCheck:
    """Warn of mistyped names; fail if one of them was meant to protect the service."""
    if not unknown:
        return DoctorCheck("settings", "ok", "no variable is mistyped")
    found = f"without effect: {', '.join(each.name for each in unknown)}"
    state: State = "fail" if any(each.guards for each in unknown) else "warn"
    return DoctorCheck("settings", state, found, "\n   → ".join(each.sentence for each in unknown))


def check_torch(_: Settings, code: str = "import torch; print(torch.__version__)") -> DoctorCheck:
    """Import torch in another process: it is slow to import, and a broken one may crash its process."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"its import ended with status {done.returncode}"])[-1]
        return DoctorCheck("torch", "fail", last, f"run `{install_command('worker')}`")
    return DoctorCheck("torch", "ok", f"{done.stdout.strip()}, Python {platform.python_version()} ({sys.executable})")


def check_cores(settings: Settings) -> DoctorCheck:
    """Count the cores of the target: CPUs that this process may use, or those of a plugin's target."""
    if (added := added_targets().get(settings.target)) is None:
        allowed = len(os.sched_getaffinity(0))
        advice = "" if allowed > 1 else "the worker shares its core with the API and Redis; two are better"
        return DoctorCheck("cores", "warn" if advice else "ok", f"{allowed} CPU cores may be used", advice)
    cores = added.describe(settings)
    state: State = "fail" if not cores.can_serve else "warn" if cores.advice else "ok"
    return DoctorCheck("cores", state, cores.found, cores.advice)


def check_redis(settings: Settings) -> DoctorCheck:
    """Find a Redis that replies and keeps the data it accepts, or a Redis that ``corelane serve`` can start."""
    try:
        from corelane.store.link.blocking import Link
        from corelane.store.redis_info import read_info
    except ImportError as error:
        return DoctorCheck("Redis", "fail", str(error), f"run `{install_command('api')}`")
    where = without_password(settings.redis_url)
    try:
        with closing(Link(settings.redis_url, PROBE_TIMEOUT_S)) as link:
            return judge_redis(where, link.read(lambda link: read_info(link, "default")), settings.replicas_ack)
    except StoreUnavailable as error:
        if "redis_url" in settings.model_fields_set:
            advice = "start it, or unset CORELANE_REDIS_URL: `corelane serve` then starts one of its own"
            return DoctorCheck("Redis", "fail", f"none to use at {where}: {error.detail}", advice)
    try:
        return DoctorCheck("Redis", "ok", f"none at {where}; `corelane serve` starts {find_server()}")
    except SetupError as missing:
        return DoctorCheck("Redis", "fail", f"none at {where}, none to start", str(missing))


def judge_redis(where: str, info: dict[str, str], wanted: int = 0) -> DoctorCheck:
    """Warn if a Redis that replies may lose accepted jobs; fail if it accepts none, for lack of ``wanted`` replicas."""
    from corelane.store.redis_info import Replication

    name, replication = info.get("server_name", "redis"), Replication.parse(info)
    found = f"{name} {info.get(f'{name}_version', info.get('redis_version', ''))} replies at {where}"
    if replication.role != "primary":
        return DoctorCheck("Redis", "fail", f"{found} and is a replica", "name its primary, or the Sentinels")
    if replication.replicas < wanted:
        advice = f"CORELANE_REPLICAS_ACK={wanted}: jobs are refused with 503 until {wanted} replicas follow"
        return DoctorCheck("Redis", "fail", f"{found} and has {replication.replicas} replicas in step", advice)
    if info.get("maxmemory_policy", "noeviction") != "noeviction":
        found += " and drops jobs when it is full"
        return DoctorCheck("Redis", "warn", found, "`CONFIG SET maxmemory-policy noeviction`")
    if info.get("aof_enabled") == "0":
        found += " and loses accepted jobs when it restarts"
        return DoctorCheck("Redis", "warn", found, "`CONFIG SET appendonly yes`")
    return DoctorCheck("Redis", "ok", found)


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
        return DoctorCheck("service", "ok", "webhooks, sweeps, feeding and batches are on time: no health issue")
    found = "\n".join(f"{issue.part}: {issue.text}" for issue in issues)
    return DoctorCheck("service", "warn", found, "`serve` shows the log of its parts; `corelane top` shows more")


def check_api_port(settings: Settings) -> DoctorCheck:
    """Check that the API's port is free, or that Corelane replies at it."""
    from corelane.client import Client

    if (port := settings.port) == 0 or port_is_free(settings.host, port):
        return DoctorCheck("API port", "ok", f"{port} is free" if port else "any that is free")
    with Client(local_url(settings.host, port), timeout_s=PROBE_TIMEOUT_S, patience_s=0) as client:
        if client.ready():
            return DoctorCheck("API port", "ok", f"{port}: Corelane replies")
    return DoctorCheck("API port", "warn", f"{port} is in use", "set CORELANE_PORT, or end what listens: `ss -ltnp`")


def check_disk(settings: Settings) -> DoctorCheck:
    """Warn if the data folder has little space; fail if it cannot be written."""
    folder = settings.data_dir.resolve()
    existing, other = nearest_existing(folder), "choose another folder with --data or CORELANE_DATA_DIR"
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        return DoctorCheck("disk", "fail", f"{folder} cannot be written", other)
    free_gib = shutil.disk_usage(existing).free / 1024**3
    advice = f"free 2 GiB, or {other}" if free_gib < 2 else ""
    return DoctorCheck("disk", "warn" if advice else "ok", f"{free_gib:,.1f} GiB free for {folder}", advice)


def check_storage(settings: Settings) -> DoctorCheck:
    """Check that the storage of files takes, returns and deletes a small file."""
    from corelane.store.file_storage import open_storage

    if settings.files_url is None:
        return DoctorCheck("files", "ok", f"in {settings.files_root}, which API and keeper share")
    try:
        open_storage(settings.files_url, settings.files_root).check()
    except (SetupError, StorageFailed) as error:
        advice = "CORELANE_FILES_URL, AWS_ENDPOINT_URL_S3 and the credentials must lead to a bucket that may be written"
        return DoctorCheck("files", "fail", error.detail, advice)
    return DoctorCheck("files", "ok", f"{without_password(settings.files_url)} takes, returns and deletes files")


def check_artifact(settings: Settings) -> DoctorCheck:
    """Check whether the default model is compiled and can be read here, and whether its scores are probabilities."""
    kind = host_kind(settings.cpu_kind)
    try:
        artifact = find_artifact(settings.artifact_root, model_name(settings.model), settings.target, kind=kind)
    except ArtifactRefused:
        found = f"{settings.model} is not compiled for {settings.target} yet below {settings.artifact_root}"
        return DoctorCheck("model", "warn", found, "`corelane serve` compiles it at its start, `corelane compile` now")
    manifest = artifact.manifest
    found = f"{manifest.version_id} for {manifest.task}, {manifest.dtype}, {len(manifest.buckets)} buckets"
    found += f"; {shown_trial(manifest.trial)}" if manifest.trial else ""
    if manifest.format != TORCHSCRIPT and not added_formats()[manifest.format].is_installed:
        found += f", of format {manifest.format}, whose library is not installed"
        return DoctorCheck("model", "fail", found, f"run `{install_command(manifest.format)}`")
    try:
        calibration = read_calibration(artifact.path, manifest.version)
    except ArtifactRefused as error:
        return DoctorCheck("model", "fail", f"{found}; it does not load: its calibration is refused", error.detail)
    how = "not calibrated: its scores are no probabilities" if calibration is None else calibration.described
    if missing := missing_instructions(manifest):
        found += f"; made for {', '.join(missing)}, which this one lacks"
        return DoctorCheck("model", "warn", f"{found}; {how}", COMPILE_HERE)
    return DoctorCheck("model", "ok", f"{found}; {how}")


CHECKS: tuple[Callable[[Settings], DoctorCheck], ...] = (
    lambda _: judge_names(unknown_names()),
    check_torch,
    check_cores,
    check_redis,
    check_service,
    check_api_port,
    check_disk,
    check_storage,
    check_artifact,
)
