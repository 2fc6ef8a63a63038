"""For tests of Neuron targets: the stand-in in a process's environment, and a machine with a device."""

import json
import os
from pathlib import Path

STAND_IN = Path(__file__).parent.parent / "neuron_stand_in"

ROOT = Path(__file__).parent.parent.parent


def make_machine(folder: Path, chip: str) -> Path:
    """Make a machine with one device of a chip."""
    for name in ("cores", "faults"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "machine.json").write_text(json.dumps({"chip": chip, "devices": [0], "memory_bytes": 0}))
    return folder


def stand_in_environment(machine: Path | None = None, **variables: str) -> dict[str, str]:
    """Return the environment of a process that finds the stand-in, on a machine or on one without a device."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("NEURON_", "CORELANE_"))}
    env |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{STAND_IN}", "PATH": f"{STAND_IN / 'bin'}{os.pathsep}{env['PATH']}"}
    env |= {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    if machine is not None:
        env["NEURON_STAND_IN"] = str(machine)
    return env | variables
