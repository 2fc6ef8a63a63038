"""What every Backend promises, run on each of them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from corelane.artifacts import MANIFEST_NAME, Artifact, read_artifact
from corelane.engine.backend import Backend, Batch, Logits, open_backend
from corelane.engine.buckets import Bucket
from corelane.errors import ArtifactRefused, LoadFailed, RunFailed, SetupError
from tests.fakes import FixedBackend

LADDER = (Bucket(32, 4), Bucket(64, 2))


@pytest.fixture(params=["cpu", "fixed"])
def backend(request: pytest.FixtureRequest) -> Backend:
    makers: dict[str, Callable[[], Backend]] = {"cpu": lambda: open_backend("cpu"), "fixed": FixedBackend}
    return makers[request.param]()


def make_batch(bucket: Bucket, rows: int, seed: int = 0, used: int | None = None) -> Batch:
    rng = np.random.default_rng(seed)
    used = bucket.length if used is None else used
    ids = rng.integers(5, 60, size=(rows, bucket.length))
    mask = np.zeros_like(ids)
    mask[:, :used] = 1
    return Batch(bucket, ids, mask, np.zeros_like(ids))


def close_to(one: Logits, other: Logits, rows: int, used: int) -> bool:
    return np.allclose(one.start[:rows, :used], other.start[:rows, :used], atol=1e-4) and np.allclose(
        one.end[:rows, :used], other.end[:rows, :used], atol=1e-4
    )


@pytest.mark.parametrize("bucket", LADDER, ids=str)
def test_run_gives_one_row_of_fp32_logits_per_row(backend: Backend, tiny_artifact: Artifact, bucket: Bucket) -> None:
    model = backend.load(tiny_artifact)
    logits = backend.run(model, make_batch(bucket, bucket.rows))
    for part in (logits.start, logits.end):
        assert part.shape == (bucket.rows, bucket.length)
        assert part.dtype == np.float32
        assert np.isfinite(part).all()
    assert model.artifact is tiny_artifact


def test_running_again_gives_the_same(backend: Backend, tiny_artifact: Artifact) -> None:
    model = backend.load(tiny_artifact)
    batch = make_batch(LADDER[0], 4)
    first = backend.run(model, batch)
    assert all(close_to(backend.run(model, batch), first, 4, 32) for _ in range(4))


def test_padding_and_other_rows_change_nothing(backend: Backend, tiny_artifact: Artifact) -> None:
    model = backend.load(tiny_artifact)
    batch, other = make_batch(LADDER[0], 4, used=20), make_batch(LADDER[0], 4, seed=9, used=20)
    before = backend.run(model, batch)
    changed = other.input_ids.copy()
    changed[0, :20] = batch.input_ids[0, :20]
    after = backend.run(model, Batch(LADDER[0], changed, batch.attention_mask, batch.token_type_ids))
    assert close_to(after, before, 1, 20)


def test_fewer_rows_than_the_bucket_where_rows_are_flexible(backend: Backend, tiny_artifact: Artifact) -> None:
    assert tiny_artifact.manifest.flexible_rows
    model = backend.load(tiny_artifact)
    full = make_batch(LADDER[0], 4)
    one = Batch(LADDER[0], full.input_ids[:1], full.attention_mask[:1], full.token_type_ids[:1])
    assert close_to(backend.run(model, one), backend.run(model, full), 1, 32)


def test_unloaded_model_refuses_to_run_and_unloads_again_in_peace(backend: Backend, tiny_artifact: Artifact) -> None:
    model = backend.load(tiny_artifact)
    backend.unload(model)
    backend.unload(model)
    with pytest.raises(RunFailed):
        backend.run(model, make_batch(LADDER[0], 1))


def test_length_that_was_not_compiled_is_refused(backend: Backend, tiny_artifact: Artifact) -> None:
    with pytest.raises(RunFailed, match="48"):
        backend.run(backend.load(tiny_artifact), make_batch(Bucket(48, 2), 2))


def test_damaged_file_is_refused_before_it_is_loaded(backend: Backend, tiny_artifact: Artifact, tmp_path: Path) -> None:
    copy = tmp_path / "damaged"
    shutil.copytree(tiny_artifact.path, copy)
    victim = copy / tiny_artifact.manifest.buckets[0].file
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    with pytest.raises(ArtifactRefused, match="damaged"):
        backend.load(read_artifact(copy))


def test_missing_file_is_refused(backend: Backend, tiny_artifact: Artifact, tmp_path: Path) -> None:
    copy = tmp_path / "incomplete"
    shutil.copytree(tiny_artifact.path, copy)
    (copy / tiny_artifact.manifest.buckets[-1].file).unlink()
    with pytest.raises(ArtifactRefused, match="missing"):
        backend.load(read_artifact(copy))


def test_file_the_manifest_has_no_digest_for_is_refused(
    backend: Backend, tiny_artifact: Artifact, tmp_path: Path
) -> None:
    copy = tmp_path / "unlisted"
    shutil.copytree(tiny_artifact.path, copy)
    file = tiny_artifact.manifest.buckets[0].file
    listed = {name: digest for name, digest in tiny_artifact.manifest.files.items() if name != file}
    (copy / MANIFEST_NAME).write_text(tiny_artifact.manifest.model_copy(update={"files": listed}).model_dump_json())
    with pytest.raises(ArtifactRefused, match="no digest"):
        backend.load(read_artifact(copy))


def test_healthy_core_says_nothing(backend: Backend) -> None:
    backend.health()


def test_sound_digest_of_an_unreadable_module_is_a_failed_load(tiny_artifact: Artifact, tmp_path: Path) -> None:
    from corelane.artifacts import digest_file

    copy = tmp_path / "nonsense"
    shutil.copytree(tiny_artifact.path, copy)
    file = tiny_artifact.manifest.buckets[0].file
    (copy / file).write_bytes(b"not a module")
    files = {**tiny_artifact.manifest.files, file: digest_file(copy / file)}
    (copy / MANIFEST_NAME).write_text(tiny_artifact.manifest.model_copy(update={"files": files}).model_dump_json())
    with pytest.raises(LoadFailed, match=file):
        open_backend("cpu").load(read_artifact(copy))


def test_unknown_target_names_those_there_are() -> None:
    with pytest.raises(SetupError, match="cpu"):
        open_backend("abacus")
