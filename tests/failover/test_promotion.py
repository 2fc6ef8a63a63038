"""A replica is promoted under load: what it did not have is lost, and nothing else; nothing is answered twice.

``make failover`` does so ten times with and without CORELANE_REPLICAS_ACK; a round in the suite.
"""

from collections import defaultdict
from pathlib import Path

import pytest

from tests.failover.scene import Scene
from tests.receivers import receiver


@pytest.mark.parametrize("acknowledged", [True, False], ids=["acknowledged", "plain"])
def test_a_promotion_loses_what_was_not_replicated_and_nothing_else(
    tmp_path: Path, acknowledged: bool, pytestconfig: pytest.Config, figures: list[str]
) -> None:
    rounds = pytestconfig.getoption("--rounds")
    if not acknowledged and rounds == 1:
        pytest.skip("runs in `make failover`")
    settings = {"CORELANE_REPLICAS_ACK": "1"} if acknowledged else {}
    with receiver() as hooks:
        scene = Scene(tmp_path, hooks, **settings)
        try:
            scene.start()
            for place in range(rounds):
                found, problems = scene.promote_under_load(cut_first=place % 2 == 0)
                figures.append(f"{'acknowledged' if acknowledged else 'plain'} {place + 1}: {found}")
                assert problems == []
                if acknowledged:
                    assert (found.lost, found.ends_undone) == (0, 0)
        finally:
            scene.stop()
        bodies = defaultdict(set)
        for post in hooks.posts:
            bodies[post.headers["webhook-id"]].add(post.body)
        assert bodies
        if acknowledged:
            assert {len(each) for each in bodies.values()} == {1}
