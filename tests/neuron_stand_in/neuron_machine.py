"""The stand-in's machine: a folder that says which devices there are, who holds which core, and what is to fail."""

import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

#: The folder of the machine; without it there is no device.
FOLDER_VARIABLE = "NEURON_STAND_IN"

#: Physical cores of a device, its memory, physical cores in a logical one by default.
CHIPS = {
    "inf1": (4, 8 * 1024**3, 1),
    "inf2": (2, 32 * 1024**3, 1),
    "trn1": (2, 32 * 1024**3, 1),
    "trn2": (8, 96 * 1024**3, 2),
    "trn3": (8, 144 * 1024**3, 2),
}

#: Micro-code takes this of each physical core's memory.
OVERHEAD_BYTES = 96 * 1000**2


@dataclass(frozen=True)
class Machine:
    """A host with devices of one chip; ``memory_bytes`` is that of a device, if it is not the usual."""

    chip: str
    devices: tuple[int, ...] = (0,)
    memory_bytes: int = 0

    def save(self, folder: Path) -> Path:
        """Make the folder of this machine."""
        (folder / "cores").mkdir(parents=True, exist_ok=True)
        (folder / "faults").mkdir(exist_ok=True)
        (folder / "machine.json").write_text(json.dumps(asdict(self)))
        return folder

    @property
    def logical(self) -> int:
        """Physical cores in a logical one, as this process sees it."""
        return int(os.environ.get("NEURON_LOGICAL_NC_CONFIG", CHIPS[self.chip][2]))

    @property
    def cores_per_device(self) -> int:
        """Logical cores."""
        return CHIPS[self.chip][0] // self.logical

    @property
    def device_bytes(self) -> int:
        """Memory of a device."""
        return self.memory_bytes or CHIPS[self.chip][1]

    @property
    def core_bytes(self) -> int:
        """Memory of a logical core that models can have."""
        return self.device_bytes // self.cores_per_device - self.logical * OVERHEAD_BYTES

    def cores_of(self, device: int) -> range:
        """Global numbers of a device's cores."""
        return range(device * self.cores_per_device, (device + 1) * self.cores_per_device)

    @property
    def cores(self) -> list[int]:
        """Global numbers of all cores."""
        return [core for device in self.devices for core in self.cores_of(device)]


def folder() -> Path | None:
    """Return the machine this process is on."""
    name = os.environ.get(FOLDER_VARIABLE)
    return Path(name) if name else None


def find_machine() -> Machine | None:
    """Return the machine this process is on; None where there is no device."""
    place = folder()
    if place is None or not (place / "machine.json").exists():
        return None
    raw = json.loads((place / "machine.json").read_text())
    return Machine(raw["chip"], tuple(raw["devices"]), raw["memory_bytes"])


def take_core(place: Path, core: int) -> int | None:
    """Hold a core until this process ends; a file descriptor, or None if another process has it."""
    descriptor = os.open(place / "cores" / str(core), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def holder(place: Path, core: int) -> int | None:
    """Return the living process that holds a core."""
    try:
        pid = int((place / "cores" / str(core)).read_text() or 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError):
        return None
    return pid if state != "Z" else None


def inject(place: Path, **fault: Any) -> None:
    """Have something fail from now on: ``on`` (init, load, execute), ``status`` or ``hang_s``, ``core``, ``token``,
    ``times``.
    """
    path = place / "faults" / f"{time.time_ns()}.json"
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps({"core": None, "token": None, "times": 1, **fault}))
    aside.rename(path)


def next_fault(place: Path, on: str, cores: tuple[int, ...], tokens: set[int] | None = None) -> dict[str, Any] | None:
    """Take the first fault that is due here; one of its times is used up."""
    if not (paths := sorted((place / "faults").glob("*.json"))):
        return None
    with (place / "faults.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in paths:
            fault: dict[str, Any] = json.loads(path.read_text())
            here = fault["core"] is None or fault["core"] in cores
            fits = fault["token"] is None or (tokens is not None and fault["token"] in tokens)
            if fault["on"] == on and fault["times"] > 0 and here and fits:
                path.write_text(json.dumps({**fault, "times": fault["times"] - 1}))
                return fault
    return None


def list_devices(machine: Machine, place: Path) -> list[dict[str, Any]]:
    """Return the output of ``neuron-ls -j``."""
    cpus = sorted(os.sched_getaffinity(0))
    devices: list[dict[str, Any]] = []
    for number in machine.devices:
        cores = list(machine.cores_of(number))
        users = sorted({pid for core in cores if (pid := holder(place, core)) is not None})
        device: dict[str, Any] = {
            "neuron_device": number,
            "bdf": f"00:{0x1E - number:02x}.0",
            "cpu_affinity": f"{cpus[0]}-{cpus[-1]}",
            "numa_node": "-1",
            "connected_to": None if len(machine.devices) == 1 else [n for n in machine.devices if abs(n - number) == 1],
            "nc_count": len(cores),
            "memory_size": machine.device_bytes,
            "neuroncore_ids": cores,
            "neuron_processes": [
                {"pid": pid, "command": _command(pid), "neuron_runtime_version": "2.33.10.0"} for pid in users
            ],
        }
        if CHIPS[machine.chip][2] > 1:
            device["logical_neuroncore_config"] = machine.logical
        devices.append(device)
    return devices


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""
