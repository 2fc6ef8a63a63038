"""The engine's forward passes beside other ways of running the same network on this CPU.

    python benchmarks/engine.py rates|base|mix [--wait] [FILE.json.gz] [--limit N] [ARTIFACT …]
    python benchmarks/engine.py --quick

``rates`` are the matmuls' own; ``base`` is BERT-base with random weights at 128 and 384 tokens; ``mix`` the built-in
model on the windows of SQuAD questions, also as the artifacts in the folders given would serve it. Each part replaces
its figures in ``results/engine.json``. All ways run interleaved in one process a core, so a busy moment hits them all
(in ``mix`` a slice of the windows at a time); both cores run the same way at once. OpenVINO and ONNX Runtime take part
where they are installed (`pip install openvino onnx onnxruntime onnxscript`). ``--wait`` prepares and waits for a line
on the standard input, since only the measurement needs a quiet machine. ``--quick`` runs all parts, with small shapes
and one layer, on one core; it keeps no figures.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.runs import QUICK, is_quick
from corelane.engine.cores import core_slot, cpu_slots
from corelane.settings import Settings

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "engine.json"

#: Timed passes of each way; the median counts, of ``mix`` the best of each slice.
PASSES = {"rates": 7, "base": 2, "mix": 2, "all": 1}

#: How the tasks end that are run on all cores at once too: all of them, or one shape of each length.
TOGETHER: dict[str, tuple[str, ...]] = {"rates": (), "base": ("8x128", "4x384"), "mix": ("",), "all": ()}

CHILD = "--child"

#: Between a way's name and the number of a slice of its windows.
SLICE = " / "


class Core:
    """A process pinned to one core that holds every way of running a part."""

    def __init__(self, index: int, arguments: list[str]) -> None:
        slot = core_slot(index, Settings(target="cpu"))
        self.process = subprocess.Popen(
            [sys.executable, __file__, CHILD, str(min(slot.cpus)), *arguments],
            env={**os.environ, **slot.environment},  # noqa: TID251  # a benchmark's child has what it has
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> Any:
        """Return its next line."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise SystemExit("a core's process died")
        return json.loads(line)

    def say(self, word: str) -> None:
        """Have it run one task, or (an empty word) end."""
        print(word, file=self.process.stdin, flush=True)


def measure(part: str, arguments: list[str]) -> dict[str, Any]:
    """Seconds of each task, on one core alone and on all at once, interleaved."""
    cores = [Core(slot.index, arguments) for slot in cpu_slots()[: 1 if is_quick() else None]]
    offers, *_ = [core.hear() for core in cores]
    if "--wait" in arguments:
        print("ready", flush=True)
        sys.stdin.readline()
    alone: dict[str, list[float]] = {task: [] for task in offers["tasks"]}
    together: dict[str, list[float]] = {task: [] for task in offers["together"]}
    for _ in range(PASSES[part]):
        for task in offers["tasks"]:
            cores[0].say(task)
            alone[task].append(cores[0].hear())
            if task in offers["together"]:
                for core in cores:
                    core.say(task)
                together[task].append(max([core.hear() for core in cores]))
    for core in cores:
        core.process.kill()
        core.process.communicate()
    figures = {"one_core_s": medians(alone), f"{len(cores)}_cores_s": medians(together), "notes": offers["notes"]}
    return {name: times for name, times in figures.items() if times}


def in_whole(figures: dict[str, Any]) -> dict[str, Any]:
    """Add up the times of each way's slices."""
    for name in [name for name in figures if name.endswith("_s")]:
        ways: dict[str, float] = {}
        for task, seconds in figures[name].items():
            way = task.partition(SLICE)[0]
            ways[way] = ways.get(way, 0.0) + seconds
        figures[name] = ways
    return figures


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    """Return the median of each; of a slice, which is short, the best."""
    return {task: min(taken) if SLICE in task else statistics.median(taken) for task, taken in times.items()}


def be_a_core(cpu: int, part: str, arguments: list[str]) -> None:
    """Offer the tasks of a part, and run those that are asked for."""
    import time

    os.sched_setaffinity(0, {cpu})
    import torch

    torch.set_num_threads(1)
    from benchmarks.engines import all_tasks, base_tasks, mix_tasks, rate_tasks

    made_by: dict[str, Callable[[list[str]], Any]] = {"rates": rate_tasks, "base": base_tasks, "mix": mix_tasks}
    tasks, notes = made_by.get(part, all_tasks)(arguments)
    shared = [task for task in tasks if task.endswith(TOGETHER[part])]
    with torch.inference_mode():
        for run in tasks.values() if part in ("rates", "base") else ():  # what is asked for answers is warm
            run()
        print(json.dumps({"tasks": list(tasks), "notes": notes, "together": shared}), flush=True)
        for line in sys.stdin:
            began = time.perf_counter()
            tasks[line.strip()]()
            print(json.dumps(time.perf_counter() - began), flush=True)


def name_cpu() -> str:
    """Name the CPU and the instructions that matter here."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    kinds = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
    return ", ".join([*(names[:1] or [platform.processor()]), *(kind for kind in kinds if f" {kind}" in text)])


def main() -> int:
    """Measure a part and keep its figures."""
    if sys.argv[1:2] == [CHILD]:
        be_a_core(int(sys.argv[2]), sys.argv[3], sys.argv[4:])
        return 0
    if is_quick():
        print(json.dumps(in_whole(measure("all", ["all", QUICK])), indent=2))
        return 0
    if sys.argv[1:2] not in (["rates"], ["base"], ["mix"]):
        raise SystemExit(__doc__)
    part = sys.argv[1]
    figures = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    figures |= {"cpu": name_cpu(), part: in_whole(measure(part, sys.argv[1:]))}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures[part], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
