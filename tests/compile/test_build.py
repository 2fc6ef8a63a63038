import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import (
    LongformerConfig,
    LongformerForQuestionAnswering,
)
from typer.testing import CliRunner

from compile.build import build
from compile.model.source import find_source
from compile.trial import Trial
from compile.verify import TOLERANCES, Tolerance
from corelane.artifacts.calibration import (
    CALIBRATION_NAME,
    SHIPPED_NAME,
    Calibration,
    parse_calibration,
    read_calibration,
    write_calibration,
)
from corelane.artifacts.finding import find_artifact, list_artifacts
from corelane.artifacts.instructions import instruction_sets
from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, check_files, read_artifact
from corelane.cli.app import make_cli
from corelane.engine.buckets import DEFAULT_BUCKETS, fitting_buckets, parse_buckets
from corelane.errors import CompileFailed, ModelRefused
from corelane.settings import Settings
from tests.compile.test_publish import everything_below, largest_file
from tests.compile.tiny_models import save_tiny
from tests.tools.artifacts import CALIBRATION


@pytest.fixture
def data(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


@pytest.fixture
def there(tiny_artifact: Artifact, data: Settings) -> Artifact:
    """Copy the artifact of the tiny model to where it would be compiled again."""
    place = data.artifact_root / tiny_artifact.path.relative_to(tiny_artifact.path.parents[2])
    return read_artifact(Path(shutil.copytree(tiny_artifact.path, place)))


def test_artifact_matches_its_manifest(tiny_artifact: Artifact) -> None:
    artifact, root = tiny_artifact, tiny_artifact.path.parents[2]
    manifest = artifact.manifest
    check_files(artifact)
    assert artifact == read_artifact(artifact.path) == find_artifact(root, "tiny-qa", "cpu")
    assert artifact.path == root / "tiny-qa" / manifest.version / "cpu"
    assert [(bucket.rows, bucket.length, bucket.file) for bucket in manifest.buckets] == [
        (4, 32, "bs4-len32.pt"),
        (2, 64, "bs4-len32.pt"),
    ]
    assert {path.name for path in artifact.path.iterdir()} == {*manifest.files, MANIFEST_NAME}
    assert manifest.max_length == 64
    assert manifest.flexible_rows
    assert manifest.flexible_lengths
    assert manifest.answers_equal == 1
    assert manifest.trial == {}
    for bucket in manifest.buckets:
        assert bucket.bytes == artifact.file(bucket.file).stat().st_size
        assert bucket.batch_ms > 0
        assert bucket.max_logit_error <= manifest.tolerance


def test_manifest_has_the_agreed_fields(tiny_artifact: Artifact) -> None:
    stored = json.loads((tiny_artifact.path / MANIFEST_NAME).read_text())
    assert stored["tools"]["cpu"] == (" ".join(instruction_sets()) or torch.backends.cpu.get_cpu_capability())
    assert set(stored) == {
        *(
            "schema_version",
            "name",
            "version",
            "task",
            "facts",
            "source",
            "source_digest",
            "target",
            "format",
            "dtype",
            "compiler",
        ),
        *("compiler_args", "tools", "created_at", "max_length", "flexible_rows", "tokenizer", "no_answer_threshold"),
        *("tolerance", "answers_equal", "f1_loss", "f1_questions", "f1_source", "verified", "cores", "coverage"),
        *("trial", "buckets", "files", "flexible_lengths"),
    }
    assert set(stored["buckets"][0]) == {
        *("rows", "length", "file", "bytes", "compile_s", "batch_ms", "max_logit_error", "neffs"),
    }


def test_name_may_be_chosen_and_steps_are_reported_in_order(tiny_model: Path, data: Settings) -> None:
    steps: list[tuple[str, int, int]] = []
    artifact = build(
        str(tiny_model),
        settings=data,
        buckets="4x32",
        dtype="fp32",
        name="mine",
        report=lambda *step: steps.append(step),
    )
    assert artifact.manifest.name == "mine"
    assert [text for text, _, _ in steps] == [
        *(f"loading {tiny_model}", "compiling 4x32 in fp32", "comparing results in fp32", "done"),
    ]
    assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)
    assert steps[-1][1:] == (3, 3)


def test_auto_measures_and_says_so(tiny_model: Path, data: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compile.build.may_be_fast", lambda _: True)
    manifest = build(str(tiny_model), settings=data, buckets="2x32").manifest
    assert "fp32" in manifest.trial
    assert manifest.dtype in manifest.trial


@pytest.fixture
def fragile_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play a machine whose bf16 is fast, passes the trial, and fails on a whole ladder."""
    monkeypatch.setitem(TOLERANCES, "bf16", Tolerance(logit=0, isolation=0, equal=1))
    trial = Trial({"fp32": 10.0, "bf16": 40.0}, {"fp32", "bf16"})
    monkeypatch.setattr("compile.build.run_trial", lambda *args, **options: trial)
    monkeypatch.setattr("compile.build.may_be_fast", lambda _: True)


@pytest.mark.usefixtures("fragile_bf16")
def test_auto_falls_back_to_the_next_dtype_if_the_first_disagrees(tiny_model: Path, data: Settings) -> None:
    manifest = build(str(tiny_model), settings=data, buckets="2x32").manifest
    assert manifest.dtype == "fp32"
    assert manifest.trial == {"fp32": 10.0, "bf16": 40.0}


@pytest.mark.usefixtures("fragile_bf16")
def test_dtype_that_was_asked_for_does_not_fall_back(tiny_model: Path, data: Settings) -> None:
    with pytest.raises(CompileFailed, match="use --dtype fp32"):
        build(str(tiny_model), settings=data, buckets="2x32", dtype="bf16")
    assert everything_below(data.artifact_root) == []


def test_same_model_compiled_again_replaces_its_artifact(tiny_model: Path, data: Settings, there: Artifact) -> None:
    second = build(str(tiny_model), settings=data, buckets="2x64", dtype="fp32")
    assert second.path == there.path
    assert {path.name for path in second.path.iterdir()} == {*second.manifest.files, MANIFEST_NAME}
    assert len(list_artifacts(data.artifact_root, "cpu")) == 1
    assert not list(data.artifact_root.glob(".*"))


def test_artifact_for_a_cpu_kind_lies_beside_the_others(tiny_model: Path, data: Settings, tmp_path: Path) -> None:
    refusals = {
        ("amx_bf16", "bf16", "cpu", "2x32"): "this CPU is no amx_bf16",
        ("avx2", "auto", "cpu", "2x32"): "give --dtype",
        ("this", "bf16", "inf2", "2x32"): "for target cpu",
        ("avx2", "fp32", "cpu", "2x64"): "reads 32 tokens at a time",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("corelane.artifacts.instructions.CPUINFO", tmp_path / "cpuinfo")
        patch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
        (tmp_path / "cpuinfo").write_text("flags\t: avx2 avx512f avx512_bf16\n")
        before = build(str(tiny_model), settings=data, buckets="2x32", dtype="fp32")
        write_calibration(before.path, CALIBRATION.model_copy(update={"version": before.manifest.version}))
        for (kind, dtype, target, buckets), reason in refusals.items():
            with pytest.raises(CompileFailed, match=reason):
                build(str(tiny_model), settings=data, buckets=buckets, dtype=dtype, target=target, cpu_kind=kind)
        old = build(str(tiny_model), settings=data, buckets="4x32", dtype="fp32", cpu_kind="avx2")
    assert (before.manifest.cpu_kind, before.path.name) == ("avx512_bf16", "cpu")
    assert (old.manifest.cpu_kind, old.path) == ("avx2", before.path.with_name("cpu-avx2"))
    assert old.manifest.version == before.manifest.version
    assert read_artifact(before.path) == before
    assert read_calibration(old.path, old.manifest.version) == read_calibration(before.path, old.manifest.version)


def test_a_model_brings_its_calibration_which_can_be_removed_for_good(
    tiny_model: Path, data: Settings, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(tiny_model, tmp_path / "calibrated-qa"))
    shipped = ship(CALIBRATION, copy, find_source(str(copy)).version)
    first = build(str(copy), settings=data, buckets="2x32", dtype="fp32")
    assert first.manifest.version == shipped.version
    assert read_calibration(first.path, shipped.version) == shipped
    (first.path / CALIBRATION_NAME).unlink()
    again = build(str(copy), settings=data, buckets="2x32", dtype="fp32")
    assert again.path == first.path
    assert read_calibration(again.path, shipped.version) is None


def ship(calibration: Calibration, model: Path, version: str) -> Calibration:
    """Put a calibration of this version into a model's folder, and return it as it is read there."""
    write_calibration(model, calibration.model_copy(update={"version": version}))
    (model / CALIBRATION_NAME).rename(model / SHIPPED_NAME)
    return parse_calibration((model / SHIPPED_NAME).read_bytes(), version, model)


def test_ladder_ends_where_the_models_positions_do(tiny_model: Path, data: Settings) -> None:
    buckets = build(str(tiny_model), settings=data, dtype="fp32").manifest.buckets
    assert [f"{bucket.rows}x{bucket.length}" for bucket in buckets] == ["16x64", "10x96", "8x128"]
    assert fitting_buckets(None) == fitting_buckets(512) == parse_buckets(DEFAULT_BUCKETS)
    assert [str(bucket) for bucket in fitting_buckets(600)[-3:]] == ["2x448", "2x512", "1x600"]
    assert [str(bucket) for bucket in fitting_buckets(32_768)[-2:]] == ["1x4096", "1x8192"]
    assert str(fitting_buckets(8192, fixed_rows=True)[-1]) == "2x512"
    fixed = [str(bucket) for bucket in fitting_buckets(128, fixed_rows=True)]
    assert fixed == ["16x64", "10x96", "1x128", "8x128"]
    assert [str(bucket) for bucket in fitting_buckets(64, short_texts=True)] == ["64x16", "32x32", "16x64"]
    assert [str(bucket) for bucket in fitting_buckets(48, short_texts=True)] == ["64x16", "32x32", "16x48"]
    assert [str(bucket) for bucket in fitting_buckets(75)] == ["16x64", "10x75"]


def test_family_that_cannot_be_run_is_refused_in_one_sentence(tmp_path: Path, data: Settings) -> None:
    longformer = save_tiny(
        *(tmp_path / "long", LongformerConfig, LongformerForQuestionAnswering),
        max_position_embeddings=130,
        attention_window=16,
        sep_token_id=3,
    )
    with pytest.raises(ModelRefused, match=r"long does not run on rows.*models\.md.*three separator"):
        build(str(longformer), settings=data, buckets="2x64", dtype="fp32")
    assert everything_below(data.artifact_root) == []


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"buckets": "4by32"}, "is not a bucket"),
        ({"buckets": "1x256"}, "longer than tiny-qa can read"),
        ({"dtype": "fp8"}, "is not a dtype"),
        ({"name": "../escape"}, "is not a model name"),
        ({"target": "abacus"}, "nothing compiles for target"),
    ],
)
def test_wrong_request_is_refused_and_nothing_is_written(
    tiny_model: Path, data: Settings, wrong: dict[str, str], sentence: str
) -> None:
    with pytest.raises(CompileFailed, match=sentence):
        build(str(tiny_model), settings=data, **({"buckets": "4x32", "dtype": "fp32"} | wrong))  # type: ignore[arg-type]
    assert not data.artifact_root.exists()


def test_task_without_compiled_models_is_refused_by_name(tiny_model: Path) -> None:
    told = CliRunner().invoke(make_cli(), ["compile", str(tiny_model), "--task", "handler"])
    assert (told.exit_code, "'handler' is not one of" in told.output) == (2, True), told.output


def test_full_disk_leaves_the_artifact_that_was_there(tiny_model: Path, data: Settings, there: Artifact) -> None:
    before = everything_below(data.artifact_root)
    with largest_file(20_000), pytest.raises(CompileFailed, match=r"disk is full .* needs about \d+ MB"):
        build(str(tiny_model), settings=data, buckets="2x64", dtype="fp32")
    assert everything_below(data.artifact_root) == before
    check_files(read_artifact(there.path))
