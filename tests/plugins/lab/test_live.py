import io
from typing import Any

from rich.console import Console

from corelane.plugins.lab.live import LINE_S, LiveView, figures
from corelane.plugins.lab.load import LoadProgress, Tick


def tick(at_s: float, sent: int, ended: int, **changes: Any) -> LoadProgress:
    return LoadProgress("measured", at_s, 12.0, Tick(sent=sent, ended=ended, **({"late_s": 0.001} | changes)))


def shown(ticks: list[LoadProgress], *, is_terminal: bool, times: list[float] | None = None) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=is_terminal, width=120, highlight=False, markup=False)
    clock = iter(times or [float(LINE_S * at) for at in range(len(ticks))])
    with LiveView(console, lambda: next(clock)) as live:
        live.begin("poisson [red]10/s\x1b[2J")
        for each in ticks:
            live.on_tick(each)
    return out.getvalue()


def test_figures_are_of_the_last_ticks() -> None:
    ticks = [tick(at, 10 * at, 9 * at, latencies=[0.1]) for at in range(15, 30)]
    text = figures(ticks)
    for words in ("10.0/s sent", "9.00/s ended", "p50 100 ms", "29 in flight"):
        assert words in text
    assert figures([tick(0.2, 1, 0)]).startswith("0.00/s sent")


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    ticks = [tick(at, 10 * at, 10 * at - 1, latencies=[0.05]) for at in range(4)]
    text = shown(ticks, is_terminal=False, times=[0.0, 1.0, LINE_S, LINE_S + 1])
    lines = text.splitlines()
    assert len(lines) == 2
    assert "measured 2 s" in lines[1]
    assert "10.0/s sent" in lines[1]
    assert "p95 50.0 ms" in lines[1]
    assert "\x1b" not in text
    assert "[red]" in text


def test_terminal_shows_failures_refusals_and_a_late_generator() -> None:
    text = shown([tick(1, 10, 4, failed=2, refused=3, late_s=0.5)], is_terminal=True)
    for words in ("6 in flight", "2 failed", "3 refused", "late 500 ms", "━"):
        assert words in text
