"""The Neuron cores of this machine, as workers take them: one, or the neighbours that a model in the settings needs."""

from collections.abc import Mapping, Sequence

from corelane.artifacts.finding import find_artifact
from corelane.artifacts.manifest import model_name
from corelane.engine.backends.plugin import TargetCore
from corelane.errors import ArtifactRefused, SetupError
from corelane.plugins.backends.neuron.chips import CHIPS
from corelane.plugins.backends.neuron.devices import (
    Device,
    find_devices,
    groups,
    neuron_environment,
    parse_cores,
    show_cores,
)
from corelane.plugins.backends.settings import BackendsFields
from corelane.settings import Settings


def find_cores(target: str, settings: Settings) -> list[TargetCore]:
    """Return the cores of a chip on this machine; raises SetupError if there are none."""
    environment, size, fields = neuron_environment(), cores_of_models(target, settings), settings.of(BackendsFields)
    devices = find_devices(target, environment, fields.neuron_numbering)
    cores = cores_of(devices, target, fields, size=size, environment=environment)
    if not cores:
        count = sum(len(device.cores) for device in devices)
        visible = environment.get("NEURON_RT_VISIBLE_CORES", "")
        left = f"; of {count} here NEURON_RT_VISIBLE_CORES leaves {visible}" if visible else f"; here are {count}"
        raise SetupError(f"the models need {size} neighbouring cores{left}")
    return cores


def cores_of(
    devices: Sequence[Device], target: str, fields: BackendsFields, *, size: int = 1, environment: Mapping[str, str]
) -> list[TargetCore]:
    """Return one core per group of ``size`` neighbours, numbered by its first core divided by ``size``.

    Cores that ``environment`` (the NEURON_* variables) hides are not used. A worker is pinned to all CPUs near its
    device, because the runtime's own threads poll.
    """
    device_of = {core: device for device in devices for core in device.cores}
    visible = environment.get("NEURON_RT_VISIBLE_CORES", "")
    cores = [core for core in device_of if not visible or core in parse_cores(visible)]
    found = []
    for group in groups(cores, size):
        device = device_of[group[0]]
        tag = f"corelane-nc{show_cores(group)}"
        memory = sum(device_of[core].core_bytes for core in group)
        variables = {
            "NEURON_RT_VISIBLE_CORES": show_cores(group),
            "NEURON_RT_EXEC_TIMEOUT": str(fields.exec_timeout_s),
            "NEURON_PROCESS_TAG": tag,
            # Never write users' texts to disk, even on an error.
            "NEURON_RT_DBG_DUMP_INPUTS_ON_ERR": "0",
            "CORELANE_DEVICE_MEMORY_BYTES": str(fields.device_memory_bytes or memory),
        }
        if "NEURON_LOGICAL_NC_CONFIG" in environment or CHIPS[target].logical > 1:
            variables["NEURON_LOGICAL_NC_CONFIG"] = str(device.logical)
        found.append(TargetCore(group[0] // size, variables, device.cpus))
    return found


def cores_of_models(target: str, settings: Settings) -> int:
    """Return the most cores that a model in the settings needs. Models that are not compiled yet count as 1."""
    needed = [1]
    for model in (settings.model, *settings.models):
        try:
            needed.append(find_artifact(settings.artifact_root, model_name(model), target).manifest.cores)
        except ArtifactRefused:
            continue
    return max(needed)
