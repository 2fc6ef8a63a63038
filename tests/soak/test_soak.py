"""A real `corelane serve` under an even load for hours, while its model is replaced again and again: every item is
answered once, every end is told once, nothing is left over, and memory, files, threads and keys stay as they are.

`make soak` runs two hours of it. The short form takes two minutes, in which nothing settles: growth is judged in the
long one alone. Latencies are printed, and never judged.
"""

import csv
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from statistics import mean

import pytest

from corelane.artifacts.finding import find_artifact
from corelane.artifacts.manifest import Artifact
from corelane.client import Client
from corelane.errors import ServiceError
from tests.chaos.audit import TIDY_S, wait_until_tidy, wait_until_told_truly
from tests.chaos.hooks import hooks
from tests.conftest import ROOT
from tests.integration.test_examples import compile_minilm
from tests.integration.test_rollout import copy_version, states, wait_ready
from tests.soak.figures import Row, grown, read_processes, read_redis, read_work, table
from tests.soak.work import MODELS, Work
from tests.tasks.tiny import compiled, save_task
from tests.tools.artifacts import keep, keep_built_in
from tests.tools.fleet import HOOKS, Fleet, running
from tests.tools.waiting import eventually

#: Hours; seconds between rows; rows between swaps of the model; how many times fewer items a job has; how many decks of
#: work the machine is measured by.
SHORT, LONG = (1 / 80, 3.0, 5, 40, 1), (2.0, 60.0, 5, 1, 10)

#: After so long under load, what is kept for a minute goes as fast as it comes, in seconds.
SETTLED_S = 100

SETTINGS = HOOKS | {
    "CORELANE_MODELS": f"{MODELS['feature-extraction']},{MODELS['text-classification']}",
    "CORELANE_RESULTS_TTL_S": "60",
    "CORELANE_WEBHOOK_RETRIES_S": ",".join(["1"] * 10),
    "PYTHONPATH": os.pathsep.join([str(ROOT / "examples"), str(ROOT)]),
}


def copy_models(data: Path) -> Artifact:
    """Copy what is served but for the handler; return the built-in model, of which versions are made."""
    for kept in (keep_built_in(), keep("minilm", compile_minilm)):
        shutil.copytree(kept / "artifacts", data / "artifacts", dirs_exist_ok=True)
    task = "text-classification"
    compiled(save_task(task, data / "models" / "topics"), data, buckets="8x64", name=MODELS[task], task=task)
    built_in = find_artifact(data / "artifacts", "qa-minilm", "cpu")
    (built_in.path / "calibration.json").unlink()  # it is for one version
    return built_in


def swap(fleet: Fleet, client: Client, first: Artifact, number: int) -> None:
    """Load a version beside the one that is served, move its aliases, and unload the other."""
    copy_version(first, f"{number:012}")
    old, new = client.get_model("default")["id"], f"qa-minilm@{number:012}"
    client.load_model(new)
    wait_ready(fleet, new)
    for alias in ("default", "qa-minilm"):
        client.set_alias(alias, new)
    client.unload_model(old)
    eventually(lambda: not states(fleet, old))


def watch(work: Work, first: Artifact, hours: float, row_s: float, swap_rows: int) -> list[Row]:
    """Swap the model now and then for so many hours; return the rows, which stand in a file too."""
    rows, began = list[Row](), time.monotonic()
    last = began
    with (work.fleet.data / "rows.csv").open("w", buffering=1) as file:
        while last - began < hours * 3600:
            time.sleep(max(0.0, last + row_s - time.monotonic()))
            seconds, last = time.monotonic() - last, time.monotonic()
            overview = work.client.overview()
            row = {"minute": (last - began) / 60, "open items": overview.waiting.open_items}
            row |= {"busy": mean(core.busy for core in overview.cores)} | read_work(work, seconds)
            rows.append(row | read_processes(work.fleet) | read_redis(work.raw))
            csv.writer(file).writerows([rows[-1].values()] if len(rows) > 1 else [rows[0], rows[0].values()])
            if len(rows) % swap_rows == 0:
                swap(work.fleet, work.client, first, len(rows))
    return rows


@pytest.mark.timeout(36_000)
def test_service_stays_as_it_is_under_an_even_load(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, wanted = request.config.getoption("--seed"), request.config.getoption("--hours")
    hours, row_s, swap_rows, shorter, decks = (wanted, *LONG[1:]) if wanted else SHORT
    first = copy_models(tmp_path)
    with running(Fleet(tmp_path, "--handler", "sentiment:Sentiment", settings=SETTINGS)) as fleet, hooks(seed) as found:
        with fleet.redis.client() as raw, fleet.client() as client:
            work = Work(fleet, client, raw, found.url, seed, shorter)
            pace_s = work.measure(decks)
            with work.load(pace_s):
                if wanted:
                    time.sleep(SETTLED_S)
                    work.done.clear()
                rows = watch(work, first, hours, row_s, swap_rows)
            for job in list(client.iter_jobs()):
                with suppress(ServiceError):  # its minute is over
                    client.delete(job.id)
            left = [*wait_until_tidy(raw, TIDY_S), *wait_until_told_truly(raw, TIDY_S)]
            left += list(raw.scan_iter("cl:*{job*", count=1000))
        left += fleet.strange_ends()
    items, wrong = sum(each.items for each in work.found), [text for each in work.found for text in each.problems]
    head = f"{1 / pace_s:.1f} things a second; {len(work.found)} jobs with {items} items were audited"
    with capsys.disabled():
        sys.stdout.write("\n".join(["", head, *table(rows), ""]))
    assert [event.answered for event in found.events().values()] == [1] * len(work.found)
    assert [*work.problems, *wrong, *left, *(grown(rows) if wanted else [])] == []
