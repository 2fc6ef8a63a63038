"""Neuron targets in real processes, with a stand-in for the packages, the compilers and the device."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from compile.build import build
from compile.model.loading import SourceModel, load_model, quiet_transformers
from compile.model.probes import make_probe
from compile.model.reference import runner_of, wrap
from compile.model.source import find_source
from compile.plan import BuildPlan
from compile.plugin import TargetOptions
from compile.verify import Disagreement
from corelane.artifacts.finding import find_artifact
from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, check_files
from corelane.cli.app import make_cli
from corelane.engine.backends.cpu import torchscript_warnings_silenced
from corelane.engine.backends.protocol import WindowBatch
from corelane.engine.buckets import Bucket
from corelane.errors import CompileFailed, CorelaneError, RunFailed, SetupError
from corelane.plugins.backends.neuron import remote
from corelane.plugins.backends.neuron.chips import CHIPS
from corelane.plugins.backends.neuron.compiling.buckets import BucketJob
from corelane.plugins.backends.neuron.compiling.children import Children
from corelane.plugins.backends.neuron.compiling.on_device import open_session, verify_buckets, verify_on_device
from corelane.plugins.backends.neuron.compiling.options import make_recipes
from corelane.settings import Settings
from tests.tasks.tiny import TASKS, alike, answer, queries_of, save_task
from tests.tasks.tiny import compiled as compiled_tiny
from tests.tools.neuron import STAND_IN, Machine, neuron_process
from tests.tools.waiting import eventually

pytestmark = pytest.mark.neuron

LADDER = (Bucket(32, 4), Bucket(64, 2))


def stand_in_environment(machine: Path | None = None, **variables: str) -> dict[str, str]:
    """Return the environment of a process that finds the stand-in, on a machine or on one without a device."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("NEURON_", "CORELANE_"))}
    root = Path(__file__).parents[2]
    env |= {"PYTHONPATH": f"{root}{os.pathsep}{STAND_IN}", "PATH": f"{STAND_IN / 'bin'}{os.pathsep}{env['PATH']}"}
    env |= {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return env | ({} if machine is None else {"NEURON_STAND_IN": str(machine)}) | variables


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Machine("inf2").save(tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="module")
def compiled(tiny_model: Path, machine: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, str]:
    """Compile the tiny model for inf2 by the real command, with a device; return the artifact and the output."""
    data = tmp_path_factory.mktemp("inf2")
    argv = [str(tiny_model), "--target", "inf2", "--buckets", "1x32,4x32,2x64", "--dtype", "fp32", "--jobs", "2"]
    env = stand_in_environment(machine, CORELANE_DATA_DIR=str(data), NEURON_STAND_IN_LOG=str(data / "compilers"))
    done = CliRunner().invoke(make_cli(), ["compile", *argv], env=env)
    assert done.exit_code == 0, done.stderr
    return find_artifact(data / "artifacts", "tiny-qa", "inf2"), done.stdout


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> SourceModel:
    with quiet_transformers():
        return load_model(find_source(str(tiny_model)))


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, machine: Path) -> pytest.MonkeyPatch:
    """Put the stand-in into this process's environment, for its children."""
    for name, value in stand_in_environment(machine).items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.fixture
def children(machine: Path) -> Iterator[Children]:
    children = Children(sys.executable, stand_in_environment(machine))
    yield children
    children.close()


def test_artifact_says_what_made_it_and_keeps_the_neffs(compiled: tuple[Artifact, str]) -> None:
    artifact, printed = compiled
    manifest = artifact.manifest
    check_files(artifact)
    assert (manifest.target, manifest.format, manifest.dtype, manifest.compiler) == (
        *("inf2", "torchscript", "fp32", "neuronx-cc"),
    )
    assert (manifest.cores, manifest.verified, manifest.flexible_rows, manifest.answers_equal) == (1, True, False, 1)
    assert manifest.schema_version == 3  # workers that know one row count of a length refuse it
    assert artifact.summary(None)["buckets"] == ["1x32", "4x32", "2x64"]
    assert manifest.compiler_args[:3] == ["weights=fp32", "--target", "inf2"]
    assert {"torch-neuronx", "neuronx-cc", "torch", "transformers", "python"} <= set(manifest.tools)
    for bucket in manifest.buckets:
        assert bucket.file == f"bs{bucket.rows}-len{bucket.length}.pt"
        assert bucket.neffs == [f"bs{bucket.rows}-len{bucket.length}.neff"]
        assert artifact.file(bucket.neffs[0]).read_bytes().startswith(b"NEFF")
        assert bucket.batch_ms > 0
        assert bucket.max_logit_error <= manifest.tolerance
    assert {path.name for path in artifact.path.iterdir()} == {*manifest.files, MANIFEST_NAME}
    assert manifest.coverage is not None
    assert (manifest.coverage.found_by, manifest.coverage.percent) == ("trace", 100)
    assert "sample answers equal to the eager model's: 100%" in printed


def test_each_bucket_had_a_compiler_of_its_own_and_none_is_compiled_twice(
    compiled: tuple[Artifact, str], tiny_model: Path, stand_in: pytest.MonkeyPatch
) -> None:
    artifact, _ = compiled
    data = artifact.path.parents[3]
    assert len((data / "compilers").read_text().splitlines()) == 3
    stand_in.setenv("NEURON_STAND_IN_LOG", str(data / "compilers"))
    steps: list[tuple[str, int, int]] = []
    again = build(
        str(tiny_model),
        settings=Settings(data_dir=data),
        target="inf2",
        buckets="1x32,4x32,2x64",
        dtype="fp32",
        options=TargetOptions(report=True),
        report=lambda *step: steps.append(step),
    )
    assert again.manifest.coverage is not None
    assert again.manifest.coverage.found_by == "analyze"
    assert again.manifest.coverage.compiled["aten::linear"] > 0
    assert len((data / "compilers").read_text().splitlines()) == 3
    assert again.manifest.buckets[0].bytes == artifact.manifest.buckets[0].bytes
    verifying = [f"verifying {bucket}" for bucket in ("1x32", "4x32", "2x64")]
    assert [text for text, _, _ in steps if text.startswith("verifying")] == verifying
    assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)
    assert steps[-1] == ("done", 8, 8)


def test_compiled_file_takes_full_batches_only_and_wrong_weights_are_caught(
    compiled: tuple[Artifact, str], model: SourceModel, children: Children, tmp_path: Path
) -> None:
    artifact, _ = compiled
    [full] = [bucket for bucket in artifact.manifest.buckets if bucket.file == "bs4-len32.pt"]
    probe = make_probe(model, LADDER[0], runner_of(wrap(model)))
    batch, doubled = probe.batches[0], wrap(model)
    with open_session(children, CHIPS["inf2"], tmp_path / "log") as session:
        with pytest.raises(CompileFailed, match="when it was loaded"):
            session.load(tmp_path / "none.pt")
        session.load(artifact.file("bs4-len32.pt"))
        fewer = WindowBatch(batch.bucket, batch.input_ids[:1], batch.attention_mask[:1], batch.token_type_ids[:1])
        with pytest.raises(RunFailed, match="failed"):
            session.run(fewer)
        assert session.run(batch)[0].shape == (4, 32)

        def run_doubled(part: WindowBatch) -> Any:
            logits = runner_of(doubled)(part)
            return (2 * logits[0], logits[1])

        other = make_probe(model, LADDER[0], run_doubled)
        with pytest.raises(Disagreement, match="gives other logits"):
            verify_buckets(session, artifact.path, [full], [other], "fp32", lambda *step: None)


class Once(nn.Module):
    """Runs once, then hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("runs", torch.zeros(1))

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        self.runs += 1
        while int(self.runs) > 1:
            self.runs += 1
        return ids.float(), mask.float()


def test_file_that_hangs_in_its_second_pass_is_caught(
    model: SourceModel, machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "GRACE_S", 0.0)
    children = Children(sys.executable, stand_in_environment(machine, NEURON_RT_EXEC_TIMEOUT="1"))
    with torchscript_warnings_silenced():
        torch.jit.script(Once()).save(tmp_path / "once.pt")
    batch = make_probe(model, LADDER[0], runner_of(wrap(model))).batches[0]
    with open_session(children, CHIPS["inf2"], tmp_path / "log") as session:
        session.load(tmp_path / "once.pt")
        session.run(batch)
        with pytest.raises(CompileFailed, match=r"a pass of 4x32: the device process gave no reply in 2 s"):
            session.run(batch)


def test_pipeline_for_inf1_is_compiled_without_a_device_and_verified_on_one(
    tiny_model: Path, tmp_path: Path, stand_in: pytest.MonkeyPatch
) -> None:
    stand_in.delenv("NEURON_STAND_IN")
    settings = Settings(data_dir=tmp_path)
    options = TargetOptions(pipeline_cores=2, cpu_backend=True, python=sys.executable)
    artifact = build(str(tiny_model), settings=settings, target="inf1", buckets="4x32", dtype="fp32", options=options)
    manifest = artifact.manifest
    check_files(artifact)
    assert (manifest.cores, manifest.verified, manifest.answers_equal) == (2, False, 0)
    assert manifest.compiler_args[-2:] == ["--neuroncore-pipeline-cores", "2"]
    assert manifest.coverage is not None
    assert manifest.coverage.found_by == "log"
    assert 50 < manifest.coverage.percent < 100
    assert manifest.coverage.not_compiled == {"aten::embedding": 3}
    with pytest.raises(CorelaneError, match="no inf1 device"):
        verify_on_device("tiny-qa", CHIPS["inf1"], settings, lambda *step: None)
    stand_in.setenv("NEURON_STAND_IN", str(Machine("inf1").save(tmp_path / "machine")))
    verified = verify_on_device("tiny-qa", CHIPS["inf1"], settings, lambda *step: None)
    check_files(verified)
    assert verified.manifest.verified
    assert verified.manifest.answers_equal == 1
    assert verified.manifest.buckets[0].batch_ms > 0
    assert not artifact.file("expected.npz").exists()
    assert verify_on_device("tiny-qa", CHIPS["inf1"], settings, lambda *step: None) == verified


def test_inf1_is_compiled_in_the_python_that_its_cores_run_in(tiny_model: Path, tmp_path: Path) -> None:
    env = {"CORELANE_DATA_DIR": str(tmp_path), "CORELANE_NEURON_PYTHON": str(tmp_path / "python3.10")}
    done = CliRunner().invoke(make_cli(), ["compile", str(tiny_model), "--target", "inf1"], env=env)
    assert done.exit_code == 1
    assert f"{tmp_path / 'python3.10'} cannot be run: No such file or directory" in done.stderr


def work(children: Children, tiny_model: Path, folder: Path, fault: str) -> str:
    """Trace with a fault and return the error's text."""
    with quiet_transformers():
        loaded = load_model(find_source(str(tiny_model)))
    reference = wrap(loaded)
    recipe = make_recipes(CHIPS["inf2"], "fp32", TargetOptions())[0]
    plan = BuildPlan("tiny-qa", loaded, reference, LADDER[:1])
    for name in ("aside", "scratch"):
        (folder / fault / name).mkdir(parents=True)
    job = BucketJob(plan, recipe, TargetOptions(), {}, folder / fault / "aside", folder / fault / "scratch", folder)
    spec = job.spec(LADDER[0], make_probe(loaded, LADDER[0], runner_of(reference)))
    with pytest.raises(CorelaneError) as caught:
        children.work(
            "trace", spec, recipe.chip, "bucket 4x32", folder / f"{fault}.log", {"NEURON_STAND_IN_FAULT": fault}
        )
    return caught.value.detail


def test_failures_of_a_tracing_process_are_explained(tiny_model: Path, children: Children, tmp_path: Path) -> None:
    expected = {
        "compiler-killed": "the compiler was killed",
        "tracer-killed": "the compiler was killed",
        "drop-mask": "does not use input 1",
    }
    with ThreadPoolExecutor(2) as pool:
        said = {fault: pool.submit(work, children, tiny_model, tmp_path, fault) for fault in expected}
    assert {fault: sentence in said[fault].result() for fault, sentence in expected.items()} == dict.fromkeys(
        expected, True
    )


def test_stub_from_pypi_torchneuron_and_missing_package_are_told_apart(tmp_path: Path) -> None:
    text = "WRONG PACKAGE. Please install the package from Neuron Repository - pip.repos.neuron.amazonaws.com"
    (tmp_path / "torch_neuron.py").write_text(f"raise ImportError({text!r})")
    children = Children(sys.executable, {**os.environ, "PYTHONPATH": str(tmp_path)})
    with pytest.raises(SetupError, match="PyPI's stub of that name"):
        children.probe(CHIPS["inf1"])
    with pytest.raises(SetupError, match=r"inf2 need torch-neuronx, which is not installed: .*constraints/neuron.txt"):
        children.probe(CHIPS["inf2"])
    with pytest.raises(SetupError, match=r"torch-neuronx 2\.14\S+ is TorchNeuron, .*: .*constraints/neuron.txt"):
        Children(sys.executable, stand_in_environment(NEURON_STAND_IN_FAULT="torchneuron")).probe(CHIPS["trn2"])
    with pytest.raises(SetupError, match="cannot be run"):
        Children(str(tmp_path / "python"), {}).probe(CHIPS["inf2"])


def test_terminated_command_takes_its_compilers_with_it(tiny_model: Path, tmp_path: Path) -> None:
    log = tmp_path / "compilers"
    env = stand_in_environment(
        CORELANE_DATA_DIR=str(tmp_path), NEURON_STAND_IN_LOG=str(log), NEURON_STAND_IN_FAULT="compiler-hangs"
    )
    argv = [str(tiny_model), "--target", "trn1", "--buckets", "4x32", "--dtype", "fp32", "--cpu-backend"]
    command = subprocess.Popen([sys.executable, "-m", "corelane", "compile", *argv], env=env, stderr=subprocess.DEVNULL)
    eventually(lambda: log.exists() and log.read_text().endswith("\n"))
    compiler = int(log.read_text().split()[0])
    command.send_signal(signal.SIGTERM)
    assert command.wait() == 143
    eventually(lambda: not Path(f"/proc/{compiler}").exists())
    assert list((tmp_path / "artifacts").iterdir()) == []


@pytest.mark.parametrize("option", [{"compiler_args": "-O1"}, {"pipeline_cores": 2}, {"cpu_backend": True}])
def test_neuron_options_are_refused_for_the_cpu(tiny_model: Path, tmp_path: Path, option: dict[str, Any]) -> None:
    with pytest.raises(CompileFailed, match=r"is for inf1, inf2, trn1, trn2, trn3, not for cpu"):
        build(str(tiny_model), settings=Settings(data_dir=tmp_path), options=TargetOptions(**option))


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("task", TASKS)
def test_each_task_is_verified_on_the_device_and_answers_there_as_on_the_cpu(task: str, tmp_path: Path) -> None:
    folder = save_task(task, tmp_path / "tiny")
    artifact = compiled_tiny(folder, tmp_path, buckets="2x32", task=task, target="inf2")
    manifest = artifact.manifest
    assert (manifest.task, manifest.verified, manifest.answers_equal) == (task, True, 1)
    with neuron_process(tmp_path, Machine("inf2"), "0"):
        found = answer(artifact, queries_of(task, 5))
    expected = answer(compiled_tiny(folder, tmp_path, buckets="2x32", task=task), queries_of(task, 5))
    assert {each["status"] for each in found} == {"succeeded"}
    assert alike(found, expected, near=1e-4)
    assert len(set(map(str, found))) == len(found)
