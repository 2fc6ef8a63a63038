"""A replica is promoted under load: what it did not have is lost, and nothing else; nothing is answered twice.

``make failover`` does so ten times each with and without CORELANE_REPLICAS_ACK, and by TLS; one round is in the suite.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.failover.scene import Scene
from tests.tools.fleet import FLOWER
from tests.tools.receivers import receiver
from tests.tools.servers import find_tls_server, make_certificates


@pytest.mark.parametrize("way", ["acknowledged", "plain", "tls"])
def test_a_promotion_loses_what_was_not_replicated_and_nothing_else(
    tmp_path: Path, way: str, pytestconfig: pytest.Config, figures: list[str]
) -> None:
    rounds = pytestconfig.getoption("--rounds")
    if way != "acknowledged" and rounds == 1:
        pytest.skip("runs in `make failover`")
    settings = {} if way == "plain" else {"CORELANE_REPLICAS_ACK": "1"}
    with receiver() as hooks:
        scene = Scene(tmp_path, hooks, with_tls(tmp_path) if way == "tls" else {}, settings)
        try:
            scene.start()
            for place in range(rounds):
                found, problems = scene.promote_under_load(cut_first=place % 2 == 0)
                figures.append(f"{way} {place + 1}: {found}")
                assert problems == []
                if way != "plain":
                    assert (found.lost, found.ends_undone) == (0, 0)
            assert scene.fleet is not None
            assert scene.fleet.api.get("/readyz").json()["details"]["redis"]["state"] == "green"
            page = httpx2.get(f"{scene.fleet.flower_url}/broker", auth=FLOWER, timeout=30)
            assert (page.status_code, "sentinel" in page.text) == (200, True)
        finally:
            scene.stop()
        bodies = defaultdict(set)
        for post in hooks.posts:
            bodies[post.headers["webhook-id"]].add(post.body)
        assert bodies
        if way != "plain":
            assert {len(each) for each in bodies.values()} == {1}


def with_tls(folder: Path) -> dict[str, Any]:
    """Return the options of servers that speak TLS alone, and ask for passwords and certificates."""
    secrets = {"password": "secret", "sentinel_password": "other"}
    binary = find_tls_server() or pytest.skip("no Redis with TLS: `make redis-servers` gets one")
    return {"binary": binary, "tls": make_certificates(folder), **secrets}
