"""The hub's most used models compile by default and give what their reference gives, or are refused with the reason."""

from pathlib import Path

import pytest

from tests.families.popular.held import check
from tests.families.popular.lists import INDEPENDENT, POPULAR
from tests.families.popular.rows import Popular
from tests.families.texts import HOSTILE
from tests.tasks.conftest import _prepared  # noqa: F401  # is used by each test


def test_list_has_sixty_and_ten_others() -> None:
    names, others = {row.name for row in POPULAR}, {row.name for row in INDEPENDENT}
    assert (len(names), len(others - names), len(set(HOSTILE))) == (60, 10, len(HOSTILE))
    assert len(HOSTILE) >= 50
    assert sum(not row.refused for row in POPULAR) >= 55


@pytest.mark.parametrize("row", [*POPULAR, *INDEPENDENT], ids=lambda row: row.name)
def test_model_is_compiled_as_its_reference_has_it(row: Popular, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("--families"):
        pytest.skip("tried by `make families`; ten of them in tests/tasks")
    check(row, tmp_path)
