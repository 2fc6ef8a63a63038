import io
from typing import Any

from rich.console import Console

from corelane.plugins.lab.live import LINE_S, LiveView
from corelane.plugins.lab.load import LoadProgress, Tick


def shown(times: list[float], *, is_terminal: bool, **counts: Any) -> str:
    """Return what a view of a run shows whose ticks come at these times."""
    out = io.StringIO()
    with LiveView(Console(file=out, force_terminal=is_terminal, width=120, highlight=False, markup=False)) as live:
        live.begin("poisson [red]10/s\x1b[2J")
        for at_s in times:
            live.on_tick(LoadProgress("measured", at_s, Tick(sent=round(10 * at_s), **counts)))
    return out.getvalue()


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    text = shown([0.0, 1.0, LINE_S, LINE_S + 1], is_terminal=False, ended=4)
    lines = text.splitlines()
    assert len(lines) == 2
    assert "measured 10 s  100 sent, 4 ended, 96 in flight" in lines[1]
    assert "\x1b" not in text
    assert "[red]" in text


def test_terminal_shows_failures_and_refusals() -> None:
    text = shown([1.0], is_terminal=True, ended=4, failed=2, refused=3)
    for words in ("6 in flight", "2 failed", "3 refused"):
        assert words in text
