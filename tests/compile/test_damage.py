"""Folders damaged at random give an artifact that does as transformers does, or one sentence; never another error."""

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from compile.build import build
from compile.model.loading import quiet_transformers
from corelane.errors import CorelaneError
from corelane.settings import Settings
from tests.compile.damage import damage, expected_of, results_of, save_models
from tests.tasks.tiny import alike

#: Damaged folders in a run.
FOLDERS = 50

#: Most characters of a refusal; a folder's name is long in tests.
MOST_CHARS = 800


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    with quiet_transformers():
        return save_models(tmp_path_factory.mktemp("whole"))


@pytest.mark.filterwarnings("ignore")
def test_a_damaged_folder_does_as_transformers_does_or_is_refused_in_one_sentence(
    models: Sequence[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    # A trial in a process of its own takes longer than all else here.
    monkeypatch.setattr("corelane.engine.text.tokenizer._fault", lambda *_: None)
    try_folders(f"{pytestconfig.getoption('--seed')}", models, tmp_path)


def try_folders(seed: str, models: Sequence[Path], tmp_path: Path) -> None:
    """Damage folders and compile them; the error says which, and what was done to it."""
    for number in range(FOLDERS):
        chosen = random.Random(f"{seed} {number}")
        folder = Path(shutil.copytree(chosen.choice(models), tmp_path / f"{number}"))
        done = [damage(folder, models, chosen) for _ in range(chosen.choice((1, 1, 1, 2)))]
        try:
            fault = try_one(folder, tmp_path / "data")
        except Exception as error:
            raise AssertionError(f"{seed}, {number}: {done}") from error
        assert fault is None, f"{seed}, {number}: {done}: {fault}"
        shutil.rmtree(folder)


def try_one(folder: Path, data: Path) -> str | None:
    """Compile a folder; return what is wrong with the outcome."""
    try:
        artifact = build(str(folder), settings=Settings(data_dir=data), buckets="1x32", dtype="fp32")
    except CorelaneError as error:
        return error.detail if "\n" in error.detail or len(error.detail) > MOST_CHARS else None
    try:
        with quiet_transformers():
            expected = expected_of(artifact.manifest.task, folder)
    except Exception:
        # What the reference itself does not load has no right result.
        return None
    found = None if expected is None else results_of(artifact)
    return None if isinstance(found, str) or alike(found, expected, 2e-4) else f"{found} is not {expected}"
