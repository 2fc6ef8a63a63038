"""What is taken for growth in a soak run."""

import random

from tests.soak.figures import grown

NAMES = ("api PSS MB", "api files", "redis keys")


def test_growth_is_told_from_noise_and_from_a_beginning() -> None:
    rng = random.Random(1)
    level = {"api PSS MB": 100.0, "api files": 40.0, "redis keys": 1000.0}
    rows = [{name: rng.gauss(1, 0.03) * level[name] * min(1, n / 10) for name in NAMES} for n in range(40)]
    rows[20]["api PSS MB"] = 900.0
    assert grown(rows) == []
    leaking = [row | {"api files": row["api files"] + 2 * n} for n, row in enumerate(rows)]
    assert [each.partition(" grew")[0] for each in grown(leaking)] == ["api files"]
