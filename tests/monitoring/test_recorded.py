"""No alert fires on the series of a real service that is well: idle for a day by a fast clock, and at work."""

from pathlib import Path

import httpx2

from corelane.cli.local import running_service
from tests.monitoring.prometheus import need
from tests.monitoring.record import DAY_MINUTES, alerts_of, record, stretch

#: Seconds that each is watched.
WATCHED_S = 8.0


def test_no_alert_fires_on_a_service_that_is_well(tmp_path: Path) -> None:
    need("promtool")
    items = [{"question": f"Who wrote it, {number}?", "context": "Ada wrote it."} for number in range(20)]
    with running_service(tmp_path / "data", auth="off", target="null", model="null") as url:
        idle = record(url, WATCHED_S, 1)
        work = record(url, WATCHED_S, 0.5, lambda: httpx2.post(f"{url}/v1/jobs", json={"items": items}))
    for scrapes in (idle, work):
        assert alerts_of(stretch(scrapes, DAY_MINUTES), "1m", tmp_path) == ""


def test_alert_fires_on_a_recording_in_which_a_loop_stands(tmp_path: Path) -> None:
    need("promtool")
    ages = [{'up{job="corelane"}': 1.0, 'corelane_loop_age_seconds{loop="batches"}': 60.0 * at} for at in range(30)]
    assert "CorelaneLoopStands" in alerts_of(ages, "1m", tmp_path)
