"""Ten of the hub's most used models; ``make families`` tries all of them."""

from pathlib import Path

import pytest

from tests.families.popular.held import check
from tests.families.popular.lists import POPULAR
from tests.families.popular.rows import Popular


@pytest.mark.parametrize("row", [row for row in POPULAR if row.quick], ids=lambda row: row.name)
def test_model_is_compiled_as_its_reference_has_it(row: Popular, tmp_path: Path) -> None:
    check(row, tmp_path)
