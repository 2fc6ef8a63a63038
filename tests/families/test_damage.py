"""More folders damaged at random than `make test` tries."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.compile.test_damage import models, try_folders

__all__ = ["models"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(8))
def test_a_damaged_folder_does_as_transformers_does_or_is_refused(
    part: int,
    models: Sequence[Path],  # the fixture
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> None:
    monkeypatch.setattr("corelane.engine.text.tokenizer._fault", lambda *_: None)
    try_folders(f"{pytestconfig.getoption('--seed')} {part}", models, tmp_path)
