"""What every Backend promises, run on each of them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, read_artifact
from corelane.engine.backends.protocol import Backend, Logits, WindowBatch
from corelane.engine.buckets import Bucket
from corelane.engine.runner import open_backend
from corelane.errors import ArtifactRefused, LoadFailed, RunFailed, SetupError
from corelane.settings import Settings
from tests.tools.fakes import FixedBackend
from tests.tools.neuron import Machine, neuron_process

LADDER = (Bucket(32, 4), Bucket(64, 2))


#: What runs here: the CPU, a backend of arithmetic, Neuron's on its stand-in in both families. Plugins run the same
#: tests with a ``case`` of their own.
TARGETS = ["cpu", "fixed", "inf2", "inf1"]


@pytest.fixture(scope="module")
def inf1_backend(neuron_python: str, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    """Open one backend for all tests: its device process is on the stand-in's machine, whatever comes here later."""
    with neuron_process(tmp_path_factory.mktemp("inf1"), Machine("inf1"), "0"):
        return open_backend("inf1", Settings.model_validate({"neuron_python": neuron_python}))


@pytest.fixture(params=TARGETS)
def case(request: pytest.FixtureRequest) -> Iterator[tuple[Backend, Artifact]]:
    """Yield a backend and the artifact it runs."""
    if request.param in ("cpu", "fixed"):
        backend = open_backend("cpu") if request.param == "cpu" else FixedBackend()
        yield backend, request.getfixturevalue("tiny_artifact")
        return
    if request.param == "inf1":
        yield request.getfixturevalue("inf1_backend"), request.getfixturevalue("neuron_artifacts")["inf1"]
        return
    with neuron_process(request.getfixturevalue("tmp_path"), Machine(request.param), "0"):
        yield open_backend(request.param), request.getfixturevalue("neuron_artifacts")[request.param]


@pytest.fixture
def backend(case: tuple[Backend, Artifact]) -> Backend:
    return case[0]


@pytest.fixture
def artifact(case: tuple[Backend, Artifact]) -> Artifact:
    return case[1]


def make_batch(bucket: Bucket, rows: int, seed: int = 0, used: int | None = None) -> WindowBatch:
    rng = np.random.default_rng(seed)
    used = bucket.length if used is None else used
    ids = rng.integers(5, 60, size=(rows, bucket.length))
    mask = np.zeros_like(ids)
    mask[:, :used] = 1
    return WindowBatch(bucket, ids, mask, np.zeros_like(ids))


def close_to(one: Logits, other: Logits, rows: int, used: int) -> bool:
    return np.allclose(one[0][:rows, :used], other[0][:rows, :used], atol=1e-4) and np.allclose(
        one[1][:rows, :used], other[1][:rows, :used], atol=1e-4
    )


@pytest.mark.parametrize("bucket", LADDER, ids=str)
def test_run_gives_one_row_of_fp32_logits_per_row(backend: Backend, artifact: Artifact, bucket: Bucket) -> None:
    model = backend.load(artifact)
    logits = backend.run(model, make_batch(bucket, bucket.rows))
    for part in (logits[0], logits[1]):
        assert part.shape == (bucket.rows, bucket.length)
        assert part.dtype == np.float32
        assert np.isfinite(part).all()
    assert model.artifact is artifact


def test_running_again_gives_the_same(backend: Backend, artifact: Artifact) -> None:
    model = backend.load(artifact)
    batch = make_batch(LADDER[0], 4)
    first = backend.run(model, batch)
    assert all(close_to(backend.run(model, batch), first, 4, 32) for _ in range(4))


def test_a_bucket_that_was_never_run_gives_the_logits_of_a_warm_one(backend: Backend, artifact: Artifact) -> None:
    model = backend.load(artifact)
    for bucket in LADDER:
        batch = make_batch(bucket, bucket.rows)
        if not backend.rows_share_kernels:
            backend.run(model, batch)  # every bucket is warmed up before it answers
        cold, *warm = (backend.run(model, batch) for _ in range(5))
        assert all(np.array_equal(logits[0], cold[0]) for logits in warm)
        assert all(np.array_equal(logits[1], cold[1]) for logits in warm)


def test_padding_and_other_rows_change_nothing(backend: Backend, artifact: Artifact) -> None:
    model = backend.load(artifact)
    batch, other = make_batch(LADDER[0], 4, used=20), make_batch(LADDER[0], 4, seed=9, used=20)
    before = backend.run(model, batch)
    changed = other.input_ids.copy()
    changed[0, :20] = batch.input_ids[0, :20]
    after = backend.run(model, WindowBatch(LADDER[0], changed, batch.attention_mask, batch.token_type_ids))
    assert close_to(after, before, 1, 20)


def test_fewer_rows_than_the_bucket_run_where_rows_are_flexible_and_are_refused_elsewhere(
    backend: Backend, artifact: Artifact
) -> None:
    model = backend.load(artifact)
    full = make_batch(LADDER[0], 4)
    one = WindowBatch(LADDER[0], full.input_ids[:1], full.attention_mask[:1], full.token_type_ids[:1])
    if artifact.manifest.flexible_rows or artifact.manifest.target == "cuda":
        assert close_to(backend.run(model, one), backend.run(model, full), 1, 32)
    else:
        with pytest.raises(RunFailed, match="4 rows of 32 tokens, not 1 of 32"):
            backend.run(model, one)
    assert np.isfinite(backend.run(model, full)[0]).all()


def test_unloaded_model_refuses_to_run_and_unloads_again_in_peace(backend: Backend, artifact: Artifact) -> None:
    model = backend.load(artifact)
    backend.unload(model)
    backend.unload(model)
    with pytest.raises(RunFailed):
        backend.run(model, make_batch(LADDER[0], 4))


def test_length_that_was_not_compiled_is_refused(backend: Backend, artifact: Artifact) -> None:
    with pytest.raises(RunFailed, match="48"):
        backend.run(backend.load(artifact), make_batch(Bucket(48, 2), 2))


def test_damaged_file_is_refused_before_it_is_loaded(backend: Backend, artifact: Artifact, tmp_path: Path) -> None:
    copy = tmp_path / "damaged"
    shutil.copytree(artifact.path, copy)
    victim = copy / artifact.manifest.buckets[0].file
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    with pytest.raises(ArtifactRefused, match="damaged"):
        backend.load(read_artifact(copy))


def test_missing_file_is_refused(backend: Backend, artifact: Artifact, tmp_path: Path) -> None:
    copy = tmp_path / "incomplete"
    shutil.copytree(artifact.path, copy)
    (copy / artifact.manifest.buckets[-1].file).unlink()
    with pytest.raises(ArtifactRefused, match="missing"):
        backend.load(read_artifact(copy))


def test_file_the_manifest_has_no_digest_for_is_refused(backend: Backend, artifact: Artifact, tmp_path: Path) -> None:
    copy = tmp_path / "unlisted"
    shutil.copytree(artifact.path, copy)
    file = artifact.manifest.buckets[0].file
    listed = {name: digest for name, digest in artifact.manifest.files.items() if name != file}
    (copy / MANIFEST_NAME).write_text(artifact.manifest.model_copy(update={"files": listed}).model_dump_json())
    with pytest.raises(ArtifactRefused, match="no digest"):
        backend.load(read_artifact(copy))


def test_healthy_core_says_nothing(backend: Backend) -> None:
    backend.health()


def test_sound_digest_of_an_unreadable_module_is_a_failed_load(
    backend: Backend, artifact: Artifact, tmp_path: Path
) -> None:
    if isinstance(backend, FixedBackend):
        return
    from corelane.artifacts.manifest import digest_file

    copy = tmp_path / "nonsense"
    shutil.copytree(artifact.path, copy)
    file = artifact.manifest.buckets[0].file
    (copy / file).write_bytes(b"not a module")
    files = {**artifact.manifest.files, file: digest_file(copy / file)}
    (copy / MANIFEST_NAME).write_text(artifact.manifest.model_copy(update={"files": files}).model_dump_json())
    with pytest.raises(LoadFailed, match=file):
        backend.load(read_artifact(copy))


def test_artifact_of_another_target_is_refused(backend: Backend, artifact: Artifact) -> None:
    foreign = artifact.model_copy(update={"manifest": artifact.manifest.model_copy(update={"target": "trn2"})})
    with pytest.raises(ArtifactRefused):
        backend.load(foreign)


def test_unknown_target_names_those_there_are() -> None:
    with pytest.raises(SetupError, match="cpu"):
        open_backend("abacus")
