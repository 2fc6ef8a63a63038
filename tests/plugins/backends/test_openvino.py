import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from compile.build import build
from compile.model.loading import load_model, quiet_transformers
from compile.model.reference import runner_of, wrap
from compile.model.source import find_source
from compile.tasks.evaluation import EvalSet
from compile.tasks.question_answering.samples import sample_queries
from compile.tasks.task import compile_task
from compile.trial import Trial
from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, check_files, digest_file, read_artifact
from corelane.cli.app import make_cli
from corelane.domain.jobs import DEFAULT_TASK
from corelane.engine.backends.protocol import WindowBatch
from corelane.engine.buckets import Bucket
from corelane.engine.runner import open_backend
from corelane.errors import ArtifactRefused, CompileFailed, LoadFailed, SetupError
from corelane.plugins.backends.openvino.graph import open_graph, options_for
from corelane.plugins.backends.openvino.quantise import (
    LEVELS,
    MOST_COST,
    LayerInputs,
    calibrate,
    choose,
    convert,
    find_inputs,
    linears,
    quantise,
    representable,
)
from corelane.settings import Settings
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from tests.compile.tiny_models import save_tiny_distilbert, save_tiny_roberta
from tests.tasks.tiny import save_tiny

TEXT = "ada wrote the first program . the river was red ."


@pytest.fixture
def artifact(tiny_openvino: Artifact) -> Artifact:
    return tiny_openvino


def test_artifact_is_a_graph_and_its_weights_for_all_buckets(artifact: Artifact) -> None:
    manifest = artifact.manifest
    check_files(artifact)
    assert (manifest.target, manifest.format, manifest.dtype) == ("cpu", "openvino", "int8")
    assert {bucket.file for bucket in manifest.buckets} == {"model.xml"}
    assert set(manifest.files) == {"model.xml", "model.bin", "tokenizer.json"}
    assert {path.name for path in artifact.path.iterdir()} == {*manifest.files, MANIFEST_NAME}
    assert manifest.bytes == sum(artifact.file(name).stat().st_size for name in ("model.xml", "model.bin"))
    assert manifest.compiler_args[0].endswith("of 12 linear layers")
    assert "openvino" in manifest.tools
    assert manifest.flexible_rows
    assert manifest.f1_questions > 0


@pytest.mark.parametrize("save", [save_tiny_roberta, save_tiny_distilbert])
def test_other_architectures_are_quantised_too(save: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = save(tmp_path / "other-qa")
    manifest = build(str(folder), settings=Settings(data_dir=tmp_path), buckets="2x62", dtype="int8").manifest
    assert manifest.compiler_args[0].endswith("of 12 linear layers")


def test_padding_and_other_rows_move_no_logit_at_all(artifact: Artifact) -> None:
    """Scales are found beforehand: a scale of the batch would let one row's large values move another row."""
    backend = open_backend("cpu")
    model = backend.load(artifact)
    rng = np.random.default_rng(0)
    ids, mask = rng.integers(5, 60, (4, 32)), np.ones((4, 32), dtype=np.int64)
    mask[:, 20:] = 0
    first = backend.run(model, WindowBatch(Bucket(32, 4), ids, mask, np.zeros_like(ids)))
    changed = rng.integers(5, 60, (4, 32))
    changed[0, :20] = ids[0, :20]
    again = backend.run(model, WindowBatch(Bucket(32, 4), changed, mask, np.zeros_like(ids)))
    assert np.array_equal(again[0][0, :20], first[0][0, :20])
    assert np.array_equal(again[1][0, :20], first[1][0, :20])
    assert not np.array_equal(again[0][1, :20], first[0][1, :20])


@pytest.mark.parametrize("name", ["model.bin", "model.xml"])
def test_file_that_is_damaged_is_refused(artifact: Artifact, tmp_path: Path, name: str) -> None:
    copy = copied(artifact, tmp_path)
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(ArtifactRefused, match=f"{name} is damaged"):
        open_backend("cpu").load(read_artifact(copy))


def test_weights_without_a_digest_are_refused_and_cut_off_ones_do_not_load(artifact: Artifact, tmp_path: Path) -> None:
    copy = copied(artifact, tmp_path)
    listed = {name: digest for name, digest in artifact.manifest.files.items() if name != "model.bin"}
    rewrite(copy, artifact, listed)
    with pytest.raises(ArtifactRefused, match=r"no digest for model\.bin"):
        open_backend("cpu").load(read_artifact(copy))
    (copy / "model.bin").write_bytes((copy / "model.bin").read_bytes()[:100])
    rewrite(copy, artifact, {**artifact.manifest.files, "model.bin": digest_file(copy / "model.bin")})
    with pytest.raises(LoadFailed, match=r"model\.xml"):
        open_backend("cpu").load(read_artifact(copy))


def test_one_process_runs_models_of_both_formats(artifact: Artifact, tiny_artifact: Artifact) -> None:
    backend = open_backend("cpu")
    models = [backend.load(one) for one in (artifact, tiny_artifact)]
    ids = np.random.default_rng(3).integers(5, 60, (4, 32))
    batch = WindowBatch(Bucket(32, 4), ids, np.ones_like(ids), np.zeros_like(ids))
    one, other = (backend.run(model, batch) for model in models)
    assert np.abs(one[0] - other[0]).max() < 0.05


PINNED = """
import os, sys, json
from pathlib import Path
import numpy as np
from corelane.artifacts.manifest import read_artifact
from corelane.engine.backends.protocol import WindowBatch
from corelane.engine.runner import open_backend
from corelane.engine.buckets import Bucket
for choose in (min, max):
    if (child := os.fork()) == 0:
        core = choose(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {core})
        backend = open_backend("cpu")
        model = backend.load(read_artifact(Path(sys.argv[1])))
        ids = np.full((4, 32), 7)
        for _ in range(3):
            backend.run(model, WindowBatch(Bucket(32, 4), ids, np.ones_like(ids), np.zeros_like(ids)))
        threads = [int(name) for name in os.listdir("/proc/self/task")]
        found = sorted({cpu for thread in threads for cpu in os.sched_getaffinity(thread)})
        print(json.dumps([[core], found]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_pinned_process_stays_on_its_core_with_all_its_threads(artifact: Artifact) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PINNED, str(artifact.path)], capture_output=True, text=True, check=True
    )
    first, last = (json.loads(line) for line in done.stdout.splitlines())
    for wanted, found in (first, last):
        assert found == wanted
    assert options_for("int8", [])["INFERENCE_NUM_THREADS"] == 1


SIGNALLED = """
import gc, os, signal, sys, threading
from pathlib import Path
from corelane.artifacts.manifest import read_artifact
from corelane.plugins.backends.openvino.graph import open_graph
models = [open_graph(read_artifact(Path(sys.argv[1])), "model.xml")]
other = threading.Thread(target=lambda: (models.clear(), gc.collect()))
other.start()
other.join()
signal.signal(signal.SIGTERM, lambda *_: print("told"))
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_signal_after_another_thread_drops_a_model_is_no_crash(artifact: Artifact) -> None:
    """OpenVINO's core gives the thread that makes it a stack for signals, and frees it with itself."""
    done = subprocess.run([sys.executable, "-c", SIGNALLED, str(artifact.path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "told\n"), done.stderr


def test_network_that_it_cannot_convert_is_compiled_in_torchscript(tmp_path: Path) -> None:
    """OpenVINO 2026.2 fails at a BART that caches nothing, with an error of its own kind."""
    folder = save_tiny("bart", "AutoModelForSequenceClassification", tmp_path / "bart")
    made = build(str(folder), settings=Settings(data_dir=tmp_path / "data"), buckets="2x32")
    assert made.manifest.format == "torchscript"


def test_other_layers_run_in_bf16_only_if_the_cpu_has_it() -> None:
    hints = [
        options_for(dtype, ["avx2", flag])["INFERENCE_PRECISION_HINT"]
        for dtype, flag in (
            ("int8", "avx512_bf16"),
            ("int8", "avx512_vnni"),
            ("bf16", "amx_bf16"),
            ("fp32", "amx_bf16"),
        )
    ]
    assert hints == ["bf16", "f32", "bf16", "f32"]


def inputs(name: str, weights: int = 1) -> LayerInputs:
    nothing = np.zeros(1, dtype=np.float32)
    return LayerInputs(frozenset({name}), nothing, nothing, weights, nothing)


def test_layers_are_taken_by_cost_a_weight_until_the_sum_is_spent() -> None:
    some = [inputs("dear"), inputs("large", 4), inputs("free"), inputs("cheap")]
    assert [min(one.names) for one in choose(some, [0.9, 0.4, -0.1, 0.2], 0.7)] == ["free", "large", "cheap"]
    assert [min(one.names) for one in choose(some, [0.9, 0.4, -0.1, 0.2], 0.5)] == ["free", "large"]
    assert choose(some[:1], [float("nan")], 1) == []


@given(st.lists(st.floats(-0.01, 0.1), max_size=8))
def test_chosen_layers_never_cost_more_than_is_allowed(costs: list[float]) -> None:
    some = [inputs(str(number)) for number in range(len(costs))]
    chosen = choose(some, costs, MOST_COST)
    assert sum(max(0.0, costs[int(min(one.names))]) for one in chosen) <= MOST_COST


@given(st.floats(-100, 100, width=32), st.floats(-100, 100, width=32))
def test_span_holds_its_values_and_zero_is_one_of_its_levels(one: float, other: float) -> None:
    low, high = representable(min(one, other), max(one, other))
    step = (high - low) / (LEVELS - 1)
    assert low <= 0 <= high
    assert low - step <= min(one, other)
    assert max(one, other) <= high + step
    assert -low / step == pytest.approx(round(-low / step), abs=1e-6)


def test_divergence_is_zero_for_equal_logits_and_grows_with_the_difference() -> None:
    logits = np.random.default_rng(0).normal(size=(2, 16)).astype(np.float32)
    same, near, far = ((logits * factor, logits * factor) for factor in (1, 1.1, 2))
    divergence = compile_task(DEFAULT_TASK).divergence
    assert divergence(same, same) == pytest.approx(0)
    assert 0 < divergence(same, near) < divergence(same, far)


def test_only_chosen_layers_are_in_int8(tiny_model: Path) -> None:
    with quiet_transformers():
        model = load_model(find_source(str(tiny_model)))
    calibration = calibrate(model, runner_of(wrap(model)), sample_queries(), 64)
    plain = convert(wrap(model), calibration.batches[0])
    read = find_inputs(plain, calibration.batches)
    assert sum(len(one.names) for one in read) == 12 == len(list(linears(plain)))
    assert max(len(one.names) for one in read) == 3, "query, key and value read the same"
    quantised = quantise(plain, read[:1])
    assert {one.get_friendly_name() for one in linears(plain)} - {
        one.get_friendly_name() for one in linears(quantised)
    } == read[0].names


def test_graph_in_fp32_is_exact_and_skips_padding(tiny_model: Path, tmp_path: Path) -> None:
    made = {
        format: build(
            str(tiny_model), settings=Settings(data_dir=tmp_path / format), buckets="4x64", format=format, dtype="fp32"
        )
        for format in ("torchscript", "openvino")
    }
    assert (made["openvino"].manifest.dtype, made["openvino"].manifest.ragged_rows) == ("fp32", True)
    ids, mask = np.random.default_rng(0).integers(5, 60, (4, 64)), np.zeros((4, 64), dtype=np.int64)
    for row, length in enumerate((64, 9, 33, 1)):
        mask[row, :length] = 1
    batch, backend = WindowBatch(Bucket(64, 4), ids, mask, np.zeros_like(ids)), open_backend("cpu")
    ours, theirs = (backend.run(backend.load(each), batch) for each in made.values())
    np.testing.assert_allclose(theirs[0][mask == 1], ours[0][mask == 1], atol=1e-5)


def eval_set() -> EvalSet:
    """Return questions that no model answers rightly, so that no F1 can be lost."""
    queries = [Query("who wrote the first program", TEXT), Query("what was red", TEXT)]
    return EvalSet("mine.json", queries, [["-"], ["-"]], lambda given, references: float(given in references))


def test_auto_tries_openvino_by_the_questions_of_a_file_and_records_its_speed(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compile.build.may_be_fast", lambda _: True)
    settings = Settings(data_dir=tmp_path)
    tried = build(str(tiny_model), settings=settings, buckets="2x32", eval_set=eval_set()).manifest
    exact = {"fp32", "bf16", "openvino fp32", "openvino bf16"}
    assert set(tried.trial) == exact | {"openvino int8"}
    assert set(build(str(tiny_model), settings=settings, buckets="2x32").manifest.trial) == exact
    kept = build(str(tiny_model), settings=settings, buckets="2x32", eval_set=eval_set(), format="torchscript").manifest
    assert (kept.format, set(kept.trial)) == ("torchscript", {"fp32", "bf16"})


def test_auto_goes_on_to_the_next_way_if_f1_is_lost(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial({"fp32": 10.0, "openvino int8": 90.0}, {"fp32", "openvino int8"})
    monkeypatch.setattr("compile.build.may_be_fast", lambda _: True)
    monkeypatch.setattr("compile.build.run_trial", lambda *args, **options: trial)
    settings = Settings(data_dir=tmp_path)
    taken = build(str(tiny_model), settings=settings, buckets="2x64", eval_set=eval_set()).manifest
    assert (taken.format, taken.f1_source) == ("openvino", "mine.json")
    monkeypatch.setattr("compile.build.MOST_LOST", -1.0)
    assert (
        build(str(tiny_model), settings=settings, buckets="2x64", eval_set=eval_set()).manifest.format == "torchscript"
    )


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"format": "onnx"}, "is not a format; choose auto, torchscript, openvino"),
        ({"format": "torchscript", "dtype": "int8"}, "format torchscript has no int8: leave --format out"),
        ({"format": "openvino", "target": "inf2"}, "for target cpu, not for inf2"),
    ],
)
def test_wrong_request_is_refused(tiny_model: Path, tmp_path: Path, wrong: dict[str, str], sentence: str) -> None:
    with pytest.raises(CompileFailed, match=sentence):
        build(str(tiny_model), settings=Settings(data_dir=tmp_path), **wrong)  # type: ignore[arg-type]


def test_missing_library_is_one_sentence_that_says_what_to_install(
    artifact: Artifact, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)  # what cannot be imported
    env = {"CORELANE_DATA_DIR": str(tmp_path), "COLUMNS": "200"}
    done = CliRunner().invoke(make_cli(), ["compile", str(tiny_model), "--dtype", "int8"], env=env)
    assert done.exit_code == 1
    with pytest.raises(SetupError) as refused:
        open_graph(artifact, "model.xml")
    for told in (done.stderr.splitlines()[-1], refused.value.detail):
        assert "install -e " in told
        assert "[openvino]" in told


def copied(artifact: Artifact, tmp_path: Path) -> Path:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in artifact.path.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    return copy


def rewrite(folder: Path, artifact: Artifact, files: dict[str, str]) -> None:
    manifest = artifact.manifest.model_copy(update={"files": files})
    (folder / MANIFEST_NAME).write_text(manifest.model_dump_json())
