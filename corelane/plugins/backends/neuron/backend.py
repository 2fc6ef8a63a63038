"""Backend for artifacts on AWS Neuron cores: torch_neuronx here, for inf1 torch_neuron elsewhere.

One process has one core, or the neighbouring cores of one pipeline. NEURON_RT_VISIBLE_CORES names them when the process
starts, and the runtime reads it once. Models are loaded whole, the largest bucket first. An unloaded model returns its
device memory. But loading and unloading fragments that memory, and only a new process has it whole again. ``errors``
classifies errors. If an error makes a core useless, the process ends, as nothing else frees the core. On inf1 all this
holds for the device process of ``remote`` and this process together.

Forward passes of several threads may share a core. It is not documented that loading during a pass is safe, so buckets
are loaded, run and dropped one at a time.
"""

import gc
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from corelane.artifacts.manifest import Artifact, Manifest, check_files
from corelane.engine.backends.protocol import Logits, Model, WindowBatch
from corelane.engine.buckets import Bucket
from corelane.engine.memory import mb
from corelane.errors import (
    ArtifactRefused,
    CoreBusy,
    CoreLost,
    EngineError,
    LoadFailed,
    RunFailed,
    RuntimeLost,
    SetupError,
)
from corelane.plugins.backends.neuron.chips import CHIPS
from corelane.plugins.backends.neuron.devices import (
    NoDevice,
    find_devices,
    logical_size,
    neuron_environment,
    parse_cores,
    show_cores,
)
from corelane.plugins.backends.neuron.errors import DeviceGone, Diagnosis, Remedy, classify

if TYPE_CHECKING:
    from corelane.plugins.backends.neuron.local import LocalModules
    from corelane.plugins.backends.neuron.remote import RemoteModules

#: Pauses between attempts at a call for which the runtime is too busy, in seconds. After the last one the process is
#: replaced.
RETRY_PAUSES_S = (0.01, 0.05, 0.2, 1.0)

#: Counters of the driver that grow when a device's memory is damaged, by device.
SYSFS = Path("/sys/devices/virtual/neuron_device")
ECC_COUNTERS = ("mem_ecc_uncorrected", "sram_ecc_uncorrected")

#: The compiler's option for the size of a logical core, as a manifest has it.
LOGICAL_OPTION = re.compile(r"(?:--logical-nc-config|--lnc|-lnc)[= ]([12])\b")


@dataclass(slots=True)
class NeuronModel:
    """TorchScript modules by bucket, and the device memory that they take, estimated from the sizes of their files."""

    artifact: Artifact
    bytes: int
    modules: dict[Bucket, Any] = field(default_factory=dict)


class NeuronBackend:
    """Runs artifacts on the Neuron cores this process was given."""

    overlaps = True
    rows_share_kernels = False

    def __init__(self, target: str, memory_bytes: int | None, python: str) -> None:
        """``memory_bytes`` is the most that all models together may take; if None, it comes from the table of chips.

        ``python`` is the interpreter that has the package of inf1. Raises SetupError.
        """
        environment = neuron_environment()
        self._target = target
        self._logical = logical_size(target, environment)
        self._cores = _visible_cores(environment)
        self._memory_bytes = memory_bytes or CHIPS[target].core_bytes(self._logical) * len(self._cores)
        self._loaded: list[NeuronModel] = []
        self._modules = _open_modules(target, python, environment)
        self._ecc = self._ecc_errors()
        self._turn = threading.Lock()

    def load(self, artifact: Artifact) -> NeuronModel:
        """Load every bucket, the largest first. A model that cannot fit is refused before the device is touched."""
        self._check(artifact)
        manifest = artifact.manifest
        model = NeuronModel(artifact, sum(bucket.bytes for bucket in manifest.buckets))
        self._check_memory(model)
        try:
            for bucket in sorted(manifest.buckets, key=lambda bucket: -bucket.rows * bucket.length):
                shape = Bucket(length=bucket.length, rows=bucket.rows)
                model.modules[shape] = self._load_bucket(manifest, artifact.file(bucket.file))
        except EngineError:
            self.unload(model)
            raise
        self._loaded.append(model)
        return model

    def _check(self, artifact: Artifact) -> None:
        manifest = artifact.manifest
        if manifest.target != self._target or manifest.format != "torchscript":
            raise ArtifactRefused(
                f"{artifact.path} is for {manifest.target}/{manifest.format}, not {self._target}/torchscript"
            )
        check_files(artifact)
        if manifest.cores > len(self._cores):
            raise ArtifactRefused(
                f"{manifest.version_id} is a pipeline over {manifest.cores} neighbouring cores; this worker has "
                f"{show_cores(self._cores)}: name it in CORELANE_MODEL or CORELANE_MODELS when the worker is started"
            )
        compiled = LOGICAL_OPTION.search(" ".join(manifest.compiler_args))
        if compiled and int(compiled[1]) != self._logical:
            raise ArtifactRefused(
                f"{manifest.version_id} was compiled for logical cores of {compiled[1]}, this worker has them of "
                f"{self._logical}: compile it again, or set NEURON_LOGICAL_NC_CONFIG={compiled[1]}"
            )

    def _check_memory(self, model: NeuronModel) -> None:
        taken = sum(other.bytes for other in self._loaded)
        if taken + model.bytes > self._memory_bytes:
            raise LoadFailed(
                f"{model.artifact.manifest.version_id} needs {mb(model.bytes)} of device memory; {mb(taken)} of "
                f"{mb(self._memory_bytes)} are taken: compile fewer or smaller buckets, or serve fewer models"
            )

    def _load_bucket(self, manifest: Manifest, path: Path) -> Any:
        # By default the buckets of a model for one core are spread over all cores of several.
        cores = None if manifest.cores == len(self._cores) else manifest.cores
        what = f"{path.name} of {manifest.version_id} does not load"
        return self._call(lambda: self._modules.load(path, cores), LoadFailed, what)

    def run(self, model: Model, batch: WindowBatch) -> Logits:
        """Run the module of the batch's bucket. Its shape is fixed, so the batch must have all rows."""
        bucket, version = batch.bucket, model.artifact.manifest.version_id
        module = cast(NeuronModel, model).modules.get(bucket)
        if module is None:
            raise RunFailed(f"{version} has no bucket {bucket} loaded")
        if batch.input_ids.shape != (bucket.rows, bucket.length):
            raise RunFailed(
                f"{version} was compiled for {bucket.rows} rows of {bucket.length} tokens, not "
                f"{batch.rows} of {batch.input_ids.shape[1]}"
            )

        what = f"forward pass of {batch.bucket} failed"
        return cast(Logits, self._call(lambda: self._modules.run(module, batch), RunFailed, what))

    def _call(self, action: Callable[[], Any], refused: type[EngineError], what: str) -> Any:
        """Call the runtime, again after each pause while it is too busy. Its errors are translated to Corelane's."""
        pauses = iter(RETRY_PAUSES_S)
        while True:
            try:
                with self._turn:
                    return action()
            except (RuntimeError, ValueError, OSError, MemoryError) as error:
                text = str(error)
                is_gone = isinstance(error, DeviceGone)
                diagnosis = Diagnosis(Remedy.RESTART, text) if is_gone else classify(text)
                pause_s = next(pauses, None) if diagnosis.remedy is Remedy.RETRY else None
                if pause_s is None:
                    self._fail(diagnosis, refused, what, error)
            time.sleep(pause_s)

    def _fail(self, diagnosis: Diagnosis, refused: type[EngineError], what: str, cause: Exception) -> NoReturn:
        cores = f"core {show_cores(self._cores)}"
        reason = diagnosis.reason
        if diagnosis.remedy is not Remedy.REFUSE:
            self._modules.end()
        match diagnosis.remedy:
            case Remedy.REFUSE:
                raise refused(f"{what}: {reason}") from cause
            case Remedy.RETIRE:
                raise CoreLost(f"{cores}: {what}: {reason}") from cause
            case Remedy.WAIT:
                raise CoreBusy(f"{cores}: {self._who_holds_it(reason)}") from cause
            case Remedy.RESTART | Remedy.RETRY:
                raise RuntimeLost(f"{cores}: {what}: {reason}", diagnosis.environment) from cause

    def _who_holds_it(self, reason: str) -> str:
        """Return ``reason`` with the processes using the device, by ``neuron-ls``; raise CoreLost without a device."""
        try:
            devices = find_devices(self._target, neuron_environment())
        except NoDevice as error:
            raise CoreLost(error.detail) from None
        except SetupError as error:
            return f"{reason}; {error.detail}"
        ours = [device for device in devices if not set(device.cores).isdisjoint(self._cores)]
        users = [f"{pid} ({command})" for device in ours for pid, command in device.users]
        return f"{reason}; processes on its device: {', '.join(users)}" if users else reason

    def settle(self) -> None:
        """Free host memory that loading left behind."""
        gc.collect()

    def unload(self, model: Model) -> None:
        """Drop the modules, which frees their device memory. This process keeps the core until it ends."""
        loaded = cast(NeuronModel, model)
        with self._turn:
            self._modules.drop(loaded.modules)
        self._loaded = [other for other in self._loaded if other is not loaded]

    def held_bytes(self) -> None:
        """Return None: the runtime does not report how much device memory is left in one piece."""
        return

    def health(self) -> None:
        """Raise CoreLost if the driver has counted damaged memory on this process' devices since it began."""
        if (errors := self._ecc_errors()) > self._ecc:
            raise CoreLost(
                f"core {show_cores(self._cores)}: its device has counted {errors - self._ecc} uncorrectable memory "
                "errors: terminate the instance, or stop and start it"
            )

    def _ecc_errors(self) -> int:
        """Count uncorrectable errors on the devices of this process' cores; 0 if the driver reports none."""
        per_device = CHIPS[self._target].cores // self._logical
        folders = {SYSFS / f"neuron{core // per_device}" / "stats" / "hardware" for core in self._cores}
        return sum(_read_count(folder / name) for folder in folders for name in ECC_COUNTERS)


def _visible_cores(environment: dict[str, str]) -> tuple[int, ...]:
    text = environment.get("NEURON_RT_VISIBLE_CORES")
    if not text:
        raise SetupError(
            "NEURON_RT_VISIBLE_CORES is not set, and without it this process would take every core of the machine; "
            "`corelane worker --core N` sets it"
        )
    return parse_cores(text)


def _open_modules(target: str, python: str, environment: dict[str, str]) -> "LocalModules | RemoteModules":
    """Open what loads and runs traced files: this process, or a device process.

    It raises the errors of the Neuron package, or RuntimeErrors with their texts.
    """
    if CHIPS[target].package == "torch_neuron":
        from corelane.plugins.backends.neuron.remote import RemoteModules

        return RemoteModules(target, python, environment)
    from corelane.plugins.backends.neuron.local import LocalModules

    return LocalModules(target)


def _read_count(path: Path) -> int:
    try:
        return int(path.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
