"""Where a run took place: the generator's machine, and the service's description of itself."""

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2

from corelane.client import Client
from corelane.client.transport import http_options
from corelane.domain.jobs import DEFAULT_TASK
from corelane.errors import CorelaneError, InvalidInput
from corelane.plugins.lab.schema import Machine, ServiceInfo
from corelane.plugins.lab.senders import Target

CPU_INFO = Path("/proc/cpuinfo")

#: The facts about a model in a report, besides its name.
DETAILS = ("target", "buckets", "max_length", "calibrated", "bytes")

#: Longest wait for the service's description, in seconds: it is made at the first request.
TIMEOUT_S = 30.0


def read_machine() -> Machine:
    """Return the facts that are known about this machine."""
    cpus = _cpus()
    clocks = [float(cpu["cpu MHz"]) for cpu in cpus if "cpu MHz" in cpu]
    return Machine(
        cpu=cpus[0].get("model name", platform.processor() or platform.machine()),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        amx="amx_tile" in cpus[0].get("flags", "").split(),
        kernel=platform.release(),
        python=platform.python_version(),
        mhz=round(sum(clocks) / len(clocks), 1) if clocks else None,
    )


def read_service(target: Target) -> ServiceInfo:
    """Return a service's description of itself; raise ServiceError or ServiceUnreachable."""
    with Client(target.url, target.api_key, patience_s=1) as client:
        models = client.models()
        cores = client.cores()
    model = find_model(models, target.model)
    version = str(model["id"])
    held = [each for core in cores for each in core.get("models", ()) if each["version"] == version]
    return ServiceInfo(
        url=target.url,
        version=_version(target),
        model=version,
        digest=next((each["manifest_sha256"] for each in held if each.get("manifest_sha256")), None),
        dtype=model.get("dtype"),
        cores=[str(core["core"]) for core in cores if core["state"] in ("idle", "busy")],
        detail={name: model[name] for name in DETAILS if name in model}
        | {"cpus": {str(core["core"]): core.get("cpus", []) for core in cores}},
    )


def task_of(target: Target) -> str:
    """Return the task of a service's model; a service of before there were tasks has the default one."""
    with Client(target.url, target.api_key, patience_s=1) as client:
        return str(find_model(client.models(), target.model).get("task", DEFAULT_TASK))


def find_model(models: Sequence[Mapping[str, Any]], wanted: str) -> Mapping[str, Any]:
    """Return the version that a version, name or alias refers to; raise InvalidInput if there is none."""
    for model in models:
        if wanted == model["id"] or wanted in model["aliases"]:
            return model
    named = [model for model in models if model["name"] == wanted]
    if not named:
        names = ", ".join(model["id"] for model in models) or "none"
        raise InvalidInput(f"{wanted!r} is no model of this service; it has {names}")
    return named[-1]


def serving_cores(target: Target) -> int:
    """Count the cores that serve now."""
    with Client(target.url, target.api_key, patience_s=1) as client:
        return sum(core["state"] in ("idle", "busy") for core in client.cores())


def _version(target: Target) -> str:
    try:
        with httpx2.Client(**http_options(target.url, target.api_key), timeout=TIMEOUT_S) as http:
            return str(http.get("/openapi.json").json()["info"]["version"])
    except (httpx2.HTTPError, ValueError, KeyError, TypeError, CorelaneError):
        return "unknown"


def _cpus() -> list[dict[str, str]]:
    """Return the fields of each CPU that the kernel reports."""
    try:
        parts = CPU_INFO.read_text().strip().split("\n\n")
    except OSError:
        return [{}]
    rows = ([line.partition(":") for line in part.splitlines()] for part in parts)
    return [{name.strip(): value.strip() for name, _, value in row} for row in rows]
