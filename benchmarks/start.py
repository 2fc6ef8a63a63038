"""How soon Corelane answers, and what its workers hold: loads, kills, new data folders, the demo, memory.

    python benchmarks/start.py [--before CHECKOUT] [--rounds 3] [--only load,kill,fresh,demo,memory] [--quick]

Of each checkout in turn, with the built-in model: a load stage by stage, in a process of its own; `serve` until its
first answer, on the first data folder of a user (nothing is kept yet) and on a second one; the only core killed, its
child and then the whole worker, until the next answer; the demo run again; RSS and PSS of workers that have run full
batches. With ``--only memory`` the memory of one worker while it answers 10,000 questions of mixed lengths, alone, a
few at a time and in jobs, and once it rests. Wall-clock times mean something on a quiet machine alone; CPU seconds of
a load nearly everywhere.
"""

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.checkouts import Serving, add_before, checkouts, in_turn, serving
from benchmarks.processes import children, descendants, role_of
from benchmarks.runs import QUICK, is_quick, keep, lent
from corelane.bench.machine import read_machine
from corelane.client import Client
from corelane.engine.cores import cpu_slots
from corelane.settings import Settings, read_settings

#: What a core's process does until its model is ready, with the CPU and wall seconds of each stage, in its checkout.
LOAD = """
import json, sys, time
from pathlib import Path
stages, last = {}, [time.process_time(), time.perf_counter()]
def lap(name):
    now = [time.process_time(), time.perf_counter()]
    stages[name], last[:] = [now[0] - last[0], now[1] - last[1]], now
import workers.core.process, corelane.engine.backends.cpu
lap("imports")
from corelane.artifacts.manifest import find_artifact
from corelane.engine.backends.registry import open_backend
from corelane.engine.runner import Runner
runner = Runner.open(open_backend("cpu"), find_artifact(Path(sys.argv[1]), sys.argv[2], "cpu"))
lap("load")
runner.warm_up()
lap("warm_up")
print(json.dumps(stages))
"""

#: Questions that fill batches of all lengths: the words of their passages, and how often they are asked.
WORDS, REPEATS = range(20, 261, 30), 24

#: Questions of mixed lengths in all, how many of them are in each job in turn, and after how many RSS is read.
MIXED, JOBS, READINGS = 10_000, (1, 1, 3, 1, 16, 1, 2, 64), (1_500, 5_000, 10_000)

#: A worker at rest has given back what it does not use within this, in seconds.
REST_S = 10.0

Figures = dict[str, float]


def question(number: int, words: int = 12) -> dict[str, str]:
    """Return a question that no earlier one equals."""
    return {"question": f"Who wrote note {number}?", "context": f"Ada wrote note {number}. " + "It was long. " * words}


def python_of(checkout: Path) -> str:
    """Return the interpreter of a checkout, or this one."""
    own = checkout / ".venv" / "bin" / "python"
    return str(own if own.exists() else sys.executable)


def ask(running: Serving, number: int) -> float:
    """Return the seconds until a question is answered, asked again until the service takes it."""
    began = time.perf_counter()
    with Client(running.url) as client:
        each = question(number)
        client.ask(each["question"], each["context"])
    return time.perf_counter() - began


def measure_load(checkout: Path, artifacts: Path, model: str) -> Figures:
    """Return CPU and wall seconds of each stage of a load, on one core."""
    [slot, *_] = cpu_slots()
    env = read_settings().environment() | slot.environment
    argv = [python_of(checkout), "-c", LOAD, str(artifacts), model]
    done = subprocess.run(argv, cwd=checkout, env=env, check=True, capture_output=True, text=True)
    stages = json.loads(done.stdout.splitlines()[-1])
    found = {f"load_{stage}_cpu_s": cpu for stage, (cpu, _) in stages.items()}
    return found | {"load_all_s": sum(wall for _, wall in stages.values())}


def measure_fresh(name: str, checkout: Path, folder: Path) -> Figures:
    """Return the seconds until the first answer on a user's first data folder, and on another one after that."""
    found = {}
    for number, kind in enumerate(("first_ever", "fresh_later")):
        began = time.perf_counter()
        with serving(name, checkout, folder / kind, artifact_cache=str(folder / "cache")) as running:
            found[f"serve_{kind}_ready_s"] = time.perf_counter() - began
            ask(running, number)
            found[f"serve_{kind}_s"] = time.perf_counter() - began
            if number:
                found |= measure_memory(running)
            began = time.perf_counter()
        found["serve_stop_s"] = time.perf_counter() - began
    return found


def measure_kills(name: str, checkout: Path, data: Path) -> Figures:
    """Return the seconds from a kill of the only core's child, and of its whole worker, to the next answer."""
    with serving(name, checkout, data, cores=1) as running:
        ask(running, 0)
        found = {}
        for number, what in enumerate(("child", "worker"), 1):
            [parent] = [pid for pid in children(running.pid) if role_of(pid) == "worker"]
            victim = children(parent)[-1] if what == "child" else parent
            os.kill(victim, signal.SIGKILL)
            found[f"kill_{what}_s"] = ask(running, number)
    return found


def measure_memory(running: Serving) -> Figures:
    """Return RSS and PSS of the workers, in MB, after batches of all lengths: of the process that holds the model, and
    of that and its parent.
    """
    items = [question(number, words) for words in WORDS for number in range(2 if is_quick() else REPEATS)]
    with Client(running.url) as client:
        client.wait(client.submit(items, options={"no_answer": False}).id)
    held = [rss_and_pss(pid) for pid in descendants(running.pid) if role_of(pid) == "worker"]
    cores = max(1, len(held) // 2)
    return {
        "core_rss_mb": max(rss for rss, _ in held),
        "core_pss_mb": max(pss for _, pss in held),
        "worker_pss_mb": sum(pss for _, pss in held) / cores,
    }


def measure_mixed(name: str, checkout: Path, data: Path) -> Figures:
    """Return RSS of a worker, in MB, fresh, after so many mixed questions, and at rest; then PSS too."""
    with serving(name, checkout, data, cores=1) as running, Client(running.url) as client:
        found, asked = {"mixed_fresh_rss_mb": worker_memory(running)[0]}, 0
        for size in itertools.cycle(JOBS):
            items = [question(asked + number, varied(asked + number)) for number in range(size)]
            client.wait(client.submit(items).id)
            asked += size
            for reading in READINGS:
                if asked - size < reading <= asked:
                    found[f"mixed_{reading}_rss_mb"] = worker_memory(running)[0]
            if asked >= (200 if is_quick() else MIXED):
                break
        time.sleep(REST_S)
        names = ("mixed_rest_rss_mb", "mixed_rest_pss_mb", "mixed_rest_worker_pss_mb")
        return found | dict(zip(names, worker_memory(running), strict=True))


def varied(number: int) -> int:
    """Return the words of a question's passage: mostly up to 400 tokens, as in SQuAD, and now and then 1,000."""
    draw = random.Random(number)
    least, most = (100, 300) if draw.random() < 0.03 else draw.choice(((1, 15), (15, 40), (20, 60), (40, 95)))
    return draw.randint(least, most)


def worker_memory(running: Serving) -> tuple[float, float, float]:
    """Return RSS and PSS of the process that holds the model, and PSS of it and its parent, in MB."""
    held = [rss_and_pss(pid) for pid in descendants(running.pid) if role_of(pid) == "worker"]
    return max(rss for rss, _ in held), max(pss for _, pss in held), sum(pss for _, pss in held)


def rss_and_pss(pid: int) -> tuple[float, float]:
    """Return what a process holds, and its part of what it shares, in MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kilobytes = {line.partition(":")[0]: int(line.split()[1]) for line in lines}
    return kilobytes["Rss"] / 1000, kilobytes["Pss"] / 1000


def measure_demo(checkout: Path) -> Figures:
    """Return the seconds of the demo, run again in its checkout, after one that may compile."""
    argv = ["make", "--no-print-directory", "-o", ".venv/.installed", "demo"]
    found = {}
    for run in ("first", "second"):
        began = time.perf_counter()
        subprocess.run(argv, cwd=checkout, check=True, capture_output=True)
        found[f"demo_{run}_s"] = time.perf_counter() - began
    return {"demo_second_s": found["demo_second_s"]}


def compiled(folder: Path) -> tuple[Path, str]:
    """Return a folder of artifacts, and the model in it: of the service that was lent, or compiled now."""
    if (running := lent()) is not None:
        return running.data / "artifacts", running.model
    settings = read_settings(data_dir=folder / "compiled")
    argv = [sys.executable, "-m", "compile", settings.model]
    subprocess.run(argv, env=settings.environment(), check=True, capture_output=True)
    return settings.artifact_root, Settings().model


def measure(name: str, checkout: Path, compiled: tuple[Path, str], only: list[str]) -> Figures:
    """Measure everything that was asked for of one checkout, once."""
    found: Figures = {}
    with tempfile.TemporaryDirectory(prefix="start-") as folder:
        parts: dict[str, Callable[[], Figures]] = {
            "load": lambda: measure_load(checkout, *compiled),
            "fresh": lambda: measure_fresh(name, checkout, Path(folder)),
            "kill": lambda: measure_kills(name, checkout, with_artifacts(Path(folder) / "kill", compiled[0])),
            "demo": lambda: measure_demo(checkout),
            "memory": lambda: measure_mixed(name, checkout, with_artifacts(Path(folder) / "memory", compiled[0])),
        }
        for part, measured in parts.items():
            if part in only:
                found |= measured()
    return found


def with_artifacts(data: Path, artifacts: Path) -> Path:
    """Return a data folder that has these artifacts."""
    shutil.copytree(artifacts, data / "artifacts")
    return data


def lines(found: dict[str, list[Figures]]) -> Iterator[str]:
    """Yield the medians as a table."""
    yield "| figure | " + " | ".join(found) + " |\n|---|" + "---|" * len(found)
    for figure in next(iter(found.values()))[0]:
        yield f"| {figure} | " + " | ".join(f"{median(rounds, figure):.2f}" for rounds in found.values()) + " |"


def median(rounds: list[Figures], figure: str) -> float:
    """Return the median of a figure over the rounds."""
    return statistics.median(each[figure] for each in rounds)


def main() -> int:
    """Measure, print and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="load" if is_quick() else "load,fresh,kill,demo,memory")
    parser.add_argument(QUICK, action="store_true", help="a load and memory alone, and no figures kept")
    add_before(parser)
    options = parser.parse_args()
    states = checkouts(options.before)
    found: dict[str, list[Figures]] = {name: [] for name in states}
    with tempfile.TemporaryDirectory(prefix="start-") as folder:
        made = compiled(Path(folder))
        for _, name in in_turn(list(states), 1 if is_quick() else options.rounds):
            found[name].append(measure(name, states[name], made, options.only.split(",")))
            print(name, json.dumps(found[name][-1]), flush=True)
    print(*lines(found), sep="\n")
    machine: Any = read_machine().model_dump(mode="json")
    keep("start", {"machine": machine} | {name: rounds[0] | _medians(rounds) for name, rounds in found.items()})
    return 0


def _medians(rounds: list[Figures]) -> Figures:
    return {figure: median(rounds, figure) for figure in rounds[0]}


if __name__ == "__main__":
    sys.exit(main())
