"""The Neuron devices of this machine, from ``neuron-ls``, or from the device files and a table of chips.

A core's number is global: device × cores per device + core. The tool counts logical cores (LNC), as this module does.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corelane.errors import SetupError
from corelane.plugins.backends.neuron.chips import CHIPS, CORE_OVERHEAD_BYTES, NeuronChip
from corelane.settings import variables

#: Where AWS installs the tools. They are on PATH only in login shells of its machine images.
TOOLS = "/opt/aws/neuron/bin"

#: Time limit for the tool, in seconds. It usually takes one; a hung driver must not block a start for ever.
TOOL_TIMEOUT_S = 20

#: Where the driver shows its devices, as neuron0, neuron1, …
DEVICE_FILES = Path("/dev")


class NoDevice(SetupError):
    """This machine, or this container, has no Neuron device."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device: the global numbers of its cores, its memory, nearby CPUs, and its users as (pid, command)."""

    number: int
    cores: tuple[int, ...]
    memory_bytes: int
    logical: int
    cpus: frozenset[int] = frozenset()
    users: tuple[tuple[int, str], ...] = ()

    @property
    def core_bytes(self) -> int:
        """Return how much of one core's memory models may take."""
        return self.memory_bytes // len(self.cores) - self.logical * CORE_OVERHEAD_BYTES


def neuron_environment() -> dict[str, str]:
    """Return this process's variables for the Neuron runtime: those with the prefix NEURON_."""
    return variables("NEURON_")


def find_devices(target: str, environment: Mapping[str, str], numbering: str = "global") -> list[Device]:
    """Find the devices of this machine, in order; raises NoDevice, or SetupError if it cannot tell."""
    chip = CHIPS[target]
    logical = logical_size(target, environment)
    tool = find_tool("neuron-ls")
    if tool is None:
        devices = list(_from_files(chip, logical))
        if not devices:
            raise NoDevice(
                f"no Neuron device: neuron-ls is not installed (looked on PATH and in {TOOLS}), and {DEVICE_FILES} has "
                "no neuron0; on a machine without them use CORELANE_TARGET=cpu"
            )
    else:
        devices = parse_devices(_run(tool), chip, logical)
    return renumber(devices) if numbering == "local" else devices


def find_tool(name: str) -> str | None:
    """Return the path of one of AWS' tools, or None."""
    return shutil.which(name) or shutil.which(name, path=TOOLS)


def logical_size(target: str, environment: Mapping[str, str]) -> int:
    """Return the number of physical cores in a logical core: NEURON_LOGICAL_NC_CONFIG, or the chip's default."""
    text = environment.get("NEURON_LOGICAL_NC_CONFIG", "")
    if text not in ("", "1", "2"):
        raise SetupError(f"NEURON_LOGICAL_NC_CONFIG is {text!r}; it must be 1 or 2")
    return int(text) if text else CHIPS[target].logical


def _run(tool: str) -> str:
    """Return the output of ``neuron-ls -j``."""
    try:
        done = subprocess.run([tool, "-j"], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{tool} does not run: {error}") from None
    if done.returncode != 0 or not done.stdout.strip():
        said = (done.stderr or done.stdout).strip() or f"status {done.returncode}"
        raise NoDevice(
            f"no Neuron device: neuron-ls says: {said}; is the driver loaded, and the device in this container?"
        )
    return done.stdout


def parse_devices(text: str, chip: NeuronChip, logical: int) -> list[Device]:
    """Parse the JSON of ``neuron-ls``; keys that older tools lack are derived. Raises SetupError if that fails."""
    try:
        devices = sorted((_device(raw, chip, logical) for raw in json.loads(text)), key=lambda device: device.number)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SetupError(f"neuron-ls -j did not give a list of devices: {error!r}") from None
    if not devices:
        raise NoDevice("no Neuron device: neuron-ls lists none; is the driver loaded?")
    return devices


def _device(raw: Mapping[str, Any], chip: NeuronChip, logical: int) -> Device:
    number, counted = int(raw["neuron_device"]), int(raw["nc_count"])
    reported = int(raw.get("logical_neuroncore_config") or 1)
    count = counted * reported // logical if "logical_neuroncore_config" in raw else counted
    ids = tuple(int(core) for core in raw.get("neuroncore_ids") or ())
    return Device(
        number=number,
        cores=ids if len(ids) == count else tuple(range(number * count, (number + 1) * count)),
        memory_bytes=int(raw.get("memory_size") or chip.memory_bytes),
        logical=logical,
        cpus=frozenset(_numbers(str(raw.get("cpu_affinity") or "")) or ()),
        users=tuple((int(user["pid"]), str(user.get("command", ""))) for user in raw.get("neuron_processes") or ()),
    )


def _from_files(chip: NeuronChip, logical: int) -> Iterator[Device]:
    count = chip.cores // logical
    numbers = sorted(int(path.name[6:]) for path in DEVICE_FILES.glob("neuron*") if path.name[6:].isdigit())
    for number in numbers:
        yield Device(number, tuple(range(number * count, (number + 1) * count)), chip.memory_bytes, logical)


def renumber(devices: Sequence[Device]) -> list[Device]:
    """Return the devices with cores counted from 0, as a runtime counts that sees only these."""
    renumbered, first = [], 0
    for device in devices:
        cores = tuple(range(first, first + len(device.cores)))
        first += len(cores)
        renumbered.append(replace(device, cores=cores))
    return renumbered


def parse_cores(text: str) -> tuple[int, ...]:
    """Parse NEURON_RT_VISIBLE_CORES (``2``, ``0-3``, ``4,5``); the cores must be neighbours, in ascending order."""
    cores = _numbers(text)
    if cores is None:
        raise SetupError(f"NEURON_RT_VISIBLE_CORES is {text!r}; write one core (2), a range (0-3) or a list (4,5)")
    if not cores or cores != list(range(cores[0], cores[0] + len(cores))):
        raise SetupError(f"NEURON_RT_VISIBLE_CORES is {text!r}; the cores must be neighbours, in ascending order")
    return tuple(cores)


def _numbers(text: str) -> list[int] | None:
    """Return the numbers in a list of numbers and ranges, such as ``0-7,16``; None if it is not readable."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            return None
        found.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found


def show_cores(cores: Sequence[int]) -> str:
    """Format neighbouring cores as NEURON_RT_VISIBLE_CORES takes them."""
    return str(cores[0]) if len(cores) == 1 else f"{cores[0]}-{cores[-1]}"


def groups(cores: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """Cut cores into groups of ``size`` neighbours. Leftover cores are not used."""
    found: list[tuple[int, ...]] = []
    run: list[int] = []
    for core in sorted(cores):
        if run and core != run[-1] + 1:
            run = []
        run.append(core)
        if len(run) == size:
            found.append(tuple(run))
            run = []
    return found
