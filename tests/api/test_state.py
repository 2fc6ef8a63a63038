"""The state of an API process: what it does when it is closed."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from api import state as state_module
from api.state import AppState
from corelane.settings import Settings
from tests.tools.servers import RedisNode, running


def test_a_redis_that_is_silent_does_not_hold_up_a_stop(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = RedisNode(tmp_path / "redis")

    async def stop() -> None:
        state = AppState(settings.model_copy(update={"redis_url": node.url}), None)
        state.start()
        await state.link("PING")
        node.freeze()
        with monkeypatch.context() as patch:
            patch.setattr(state_module, "CLOSE_S", 0.2)
            await state.close()
        node.thaw()
        await state.close()

    with running(node), capture_logs() as lines:
        asyncio.run(stop())
    [late] = [line for line in lines if line["event"] == "close_late"]
    assert late["waits_for"][0] == "AppState._close"
    assert len(late["waits_for"]) > 1
