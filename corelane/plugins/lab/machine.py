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
from corelane.errors import CorelaneError
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
    model = _model_of(target, models)
    version = str(model.get("id", target.model))
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
    """Return the task of a service's model; that of a service that names none is the first there was."""
    with Client(target.url, target.api_key, patience_s=1) as client:
        model = _model_of(target, client.models())
    return str(model.get("task", DEFAULT_TASK))


def _model_of(target: Target, models: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the version that a target names, or nothing."""
    return next((each for each in models if target.model in (each["id"], each["name"], *each["aliases"])), {})


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
