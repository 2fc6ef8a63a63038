"""How soon Corelane answers, and what its workers hold: loads, kills, new data folders, the demo, memory.

    python benchmarks/start.py [--before CHECKOUT] [--rounds 3] [--only load,kill,fresh,demo,memory] [--quick]

Of each checkout in turn, with the built-in model: a load stage by stage, in a process of its own; `serve` until its
first answer, on the first data folder of a user (nothing is kept yet) and on a second one; the only core killed, its
child and then the whole worker, until the next answer; the demo run again; RSS and PSS of workers that have run full
batches. With ``--only memory`` the memory of one worker while it answers 10,000 questions of mixed lengths, alone, a
few at a time and in jobs, and once it rests. Wall-clock times mean something on a quiet machine alone; CPU seconds of
a load nearly everywhere.
"""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.harness import (
    Figures,
    Serving,
    checkouts,
    children,
    compiled,
    environment,
    is_quick,
    measure_in_turn,
    parser_of,
    python_of,
    role_of,
    serving,
)
from corelane.client import Client

#: What a core's process does until its model is ready, with the CPU and wall seconds of each stage, in its checkout.
LOAD = """
import json, os, sys, time
from pathlib import Path
os.sched_setaffinity(0, {int(sys.argv[3])})
stages, last = {}, [time.process_time(), time.perf_counter()]
def lap(name):
    now = [time.process_time(), time.perf_counter()]
    stages[name], last[:] = [now[0] - last[0], now[1] - last[1]], now
import workers.core.process, corelane.engine.backends.cpu
lap("imports")
from corelane.artifacts.finding import find_artifact
from corelane.engine.runner import open_backend
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
REST_S, QUICK_REST_S = 10.0, 0.1


def question(number: int, words: int = 12) -> dict[str, str]:
    """Return a question that no earlier one equals."""
    return {"question": f"Who wrote note {number}?", "context": f"Ada wrote note {number}. " + "It was long. " * words}


def ask(running: Serving, number: int) -> float:
    """Return the seconds until a question is answered, asked again until the service takes it."""
    began = time.perf_counter()
    with Client(running.url) as client:
        each = question(number)
        client.ask(each["question"], each["context"])
    return time.perf_counter() - began


def measure_load(checkout: Path, artifacts: Path, model: str) -> Figures:
    """Return CPU and wall seconds of each stage of a load, on one core."""
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    argv = [python_of(checkout), "-c", LOAD, str(artifacts), model, str(min(os.sched_getaffinity(0)))]
    env = environment() | one_thread
    done = subprocess.run(argv, cwd=checkout, env=env, check=True, capture_output=True, text=True)
    stages = json.loads(done.stdout.splitlines()[-1])
    found = {f"load_{stage}_cpu_s": cpu for stage, (cpu, _) in stages.items()}
    return found | {"load_all_s": sum(wall for _, wall in stages.values())}


def measure_fresh(name: str, checkout: Path, folder: Path) -> Figures:
    """Return the seconds until the first answer on a new data folder, and on the same one after that."""
    found = {}
    for number, kind in enumerate(("first_ever", "again")):
        began = time.perf_counter()
        with serving(folder, name, checkout) as running:
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
    with serving(data, name, checkout, cores=1) as running:
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
    held = [rss_and_pss(pid) for pid in running.pids("worker")]
    cores = max(1, len(held) // 2)
    return {
        "core_rss_mb": max(rss for rss, _ in held),
        "core_pss_mb": max(pss for _, pss in held),
        "worker_pss_mb": sum(pss for _, pss in held) / cores,
    }


def measure_mixed(name: str, checkout: Path, data: Path) -> Figures:
    """Return RSS of a worker, in MB, fresh, during many mixed questions, and at rest; then PSS too."""
    with serving(data, name, checkout, cores=1) as running, Client(running.url) as client:
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
        time.sleep(QUICK_REST_S if is_quick() else REST_S)
        names = ("mixed_rest_rss_mb", "mixed_rest_pss_mb", "mixed_rest_worker_pss_mb")
        return found | dict(zip(names, worker_memory(running), strict=True))


def varied(number: int) -> int:
    """Return the words of a question's passage: mostly up to 400 tokens, as in SQuAD, and now and then 1,000."""
    draw = random.Random(number)
    least, most = (100, 300) if draw.random() < 0.03 else draw.choice(((1, 15), (15, 40), (20, 60), (40, 95)))
    return draw.randint(least, most)


def worker_memory(running: Serving) -> tuple[float, float, float]:
    """Return RSS and PSS of the process that holds the model, and PSS of it and its parent, in MB."""
    held = [rss_and_pss(pid) for pid in running.pids("worker")]
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


def measure(name: str, checkout: Path, artifacts: Path, model: str, only: list[str]) -> Figures:
    """Measure everything that was asked for of one checkout, once."""
    found: Figures = {}
    with tempfile.TemporaryDirectory(prefix="start-") as folder:
        own = Path(folder)
        parts: dict[str, Callable[[], Figures]] = {
            "load": lambda: measure_load(checkout, artifacts, model),
            "fresh": lambda: measure_fresh(name, checkout, own),
            "kill": lambda: measure_kills(name, checkout, with_artifacts(own / "kill", artifacts)),
            "demo": lambda: measure_demo(checkout),
            "memory": lambda: measure_mixed(name, checkout, with_artifacts(own / "memory", artifacts)),
        }
        for part, measured in parts.items():
            if part in only:
                found |= measured()
    return found


def with_artifacts(data: Path, artifacts: Path) -> Path:
    """Return a data folder that has these artifacts."""
    shutil.copytree(artifacts, data / "artifacts")
    return data


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--only", default="load,memory" if is_quick() else "load,fresh,kill,demo,memory")
    options = parser.parse_args()
    states, only = checkouts(options.before), options.only.split(",")
    with tempfile.TemporaryDirectory(prefix="start-") as folder:
        made = compiled(Path(folder))
        measure_in_turn(list(states), options.rounds, lambda name: measure(name, states[name], *made, only))
    return 0


if __name__ == "__main__":
    sys.exit(main())
