"""The series of a real service, idle and at work, and whether an alert fires on them.

    python -m tests.monitoring.record [--minutes 30]

Starts a service, records what rules ask for while it idles, and runs the rules over the recording: as it was, and for a
day by a fast clock. There each minute has the next sample of the recording, again and again. Gauges have its values,
and counters go on growing as they grew in it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from corelane.cli.local import running_service
from tests.monitoring.prometheus import MONITORING, need, rules
from tests.monitoring.queries import metrics_in

#: The values of all series at one time.
Scrape = Mapping[str, float]

DAY_MINUTES = 1440

FIRED = 'group by (alertname) (last_over_time(ALERTS{alertstate="firing"}[2d]))'


def asked_for() -> set[str]:
    """Return the metrics that alerts are about, by themselves or by a recording rule that they name."""
    alerts = " ".join(rule["expr"] for rule in rules("alerts"))
    used = [rule["expr"] for rule in rules("recording") if rule["record"] in alerts]
    return metrics_in(" ".join([alerts, *used]))


def scrape(url: str) -> Scrape:
    """Read the series that alerts are about."""
    text = httpx2.get(f"{url}/metrics", timeout=30).raise_for_status().text
    named = asked_for()
    found = {'up{job="corelane"}': 1.0}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name not in named:
                continue
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def record(url: str, seconds: float, every_s: float, act: Callable[[], object] = bool) -> list[Scrape]:
    """Scrape for some time; ``act`` is done between two scrapes."""
    until, found = time.monotonic() + seconds, [scrape(url)]
    while time.monotonic() < until:
        act()
        time.sleep(every_s)
        found.append(scrape(url))
    return found


def stretch(scrapes: Sequence[Scrape], count: int) -> list[Scrape]:
    """Return so many scrapes, the recorded ones again and again; counters go on from where they were."""
    found = [scrapes[0]]
    while len(found) < count:
        for before, after in pairwise(scrapes):
            last = found[-1]
            found.append({name: _next(name, last, before, value) for name, value in after.items()})
    return found[:count]


def _next(name: str, last: Scrape, before: Scrape, value: float) -> float:
    is_counter = name.partition("{")[0].endswith(("_total", "_bucket", "_sum", "_count"))
    return last.get(name, 0.0) + value - before.get(name, 0.0) if is_counter else value


def alerts_of(scrapes: Sequence[Scrape], interval: str, folder: Path) -> str:
    """Run the rules over scrapes one interval apart; return what promtool says of alerts that fired, empty if none."""
    names = sorted({name for each in scrapes for name in each})
    series = [
        {"series": name, "values": " ".join(f"{each[name]!r}" if name in each else "_" for each in scrapes)}
        for name in names
    ]
    end = f"{len(scrapes) * int(interval[:-1])}{interval[-1]}"
    test: dict[str, Any] = {
        "interval": interval,
        "input_series": series,
        "promql_expr_test": [{"expr": FIRED, "eval_time": end, "exp_samples": []}],
    }
    files = [str(path) for path in sorted((MONITORING / "rules").glob("*.yml"))]
    path = folder / "recorded.yml"
    path.write_text(json.dumps({"rule_files": files, "evaluation_interval": interval, "tests": [test]}))
    done = subprocess.run([need("promtool"), "test", "rules", str(path)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def main() -> int:
    """Record an idle service, and say which alerts fired."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running_service(folder / "data", auth="off") as url:
            found = record(url, minutes * 60, 15)
        for what, scrapes, interval in (("as recorded", found, "15s"), ("a day", stretch(found, DAY_MINUTES), "1m")):
            said = alerts_of(scrapes, interval, folder)
            sys.stdout.write(f"{what}: {len(scrapes)} scrapes, {said or 'no alert fired'}\n")
            if said:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
