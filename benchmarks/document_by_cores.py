"""One document on simulated cores: how long it takes against an Nth of one core's time, and what the cores waited for.

    python benchmarks/document_by_cores.py [--cores 1 2 4 8] [--megabytes 1] [--row-ms 33] [--rounds N] [--quick]

The worker's own drain and the built-in tokenizer on a Redis of their own, with a model that only sleeps, ``--row-ms``
for a row of 384 tokens. So more cores are measured than the machine has. The text is that of the repository's docs. Of
each core: when it began its first batch, how long it stood between its first and its last, and how long the answer took
after that. With ``--after`` the cores have answered a job of other questions just before. Writes
`results/document_by_cores.json`.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.questions import ROOT
from benchmarks.runs import QUICK, is_quick, keep
from benchmarks.simulated_cores import Plan, own_redis, running_squad, submit, wait_until_final, with_submitter
from benchmarks.tokenise import LADDER, MODEL, Table, make_task
from corelane.domain.jobs import Item
from corelane.engine.backends.protocol import Batch, Logits
from corelane.engine.runner import Runner, RunnerLimits, ServedModel
from corelane.settings import Settings

VERSION = "document@1"

#: A batch takes at most about this, as in the product, in seconds.
TARGET_S = Settings().latency_target_s

#: One document takes at most this long, in seconds.
MOST_S = 600

QUESTION = "How many tokens may wait in all?"


class SleepingRunner(Runner):
    """The built-in model's runner over sleep; it notes when each batch began and ended."""

    def __init__(self, row_s: float, notes: Path) -> None:
        table = Table()

        def run(batch: Batch) -> Logits:
            began = time.monotonic()
            time.sleep(row_s * batch.rows * batch.bucket.length / LADDER[-1].length)
            with notes.open("a") as file:
                file.write(f"{began} {time.monotonic()} {batch.rows}\n")
            return table.run(batch)

        name = VERSION.partition("@")[0]
        served = ServedModel(name, VERSION, {"name": name, "target": "simulated"}, LADDER, flexible_rows=True)
        task = make_task(Tokenizer.from_file(str(MODEL / "tokenizer.json")))
        super().__init__(task, served, run, limits=RunnerLimits(latency_target_s=TARGET_S))


@dataclass(frozen=True, slots=True)
class DocumentPlan(Plan):
    """Cores of the built-in model that sleep ``row_s`` for a row, and note their batches in ``folder``."""

    row_s: float = 0.0
    folder: Path = Path()

    def runners(self, core: int) -> dict[str, Runner]:
        """Return the model of a core."""
        return {VERSION: SleepingRunner(self.row_s, self.folder / str(core))}


def text_of(size: int) -> str:
    """Return the repository's documents one after the other, of so many characters in all."""
    whole = "\n".join(path.read_text() for path in sorted((ROOT / "docs").rglob("*.md")))
    return (whole * (size // len(whole) + 1))[:size]


def read(cores: int, text: str, row_s: float, *, after: bool) -> dict[str, float]:
    """Return how long a document took on so many cores, and what they waited for, in seconds."""
    with own_redis() as url, tempfile.TemporaryDirectory() as folder, redis.Redis.from_url(url) as raw:
        versions = dict.fromkeys(range(cores), (VERSION,))
        plan = DocumentPlan(url, versions, None, 1 if is_quick() else None, row_s=row_s, folder=Path(folder))
        settings = plan.settings

        def ask(*items: Item) -> None:
            with_submitter(settings, lambda submitter: submit(submitter, VERSION, items, "own"))

        with running_squad(plan) as squad:
            squad.go()
            ask(*[Item(question=QUESTION, context=text[:600])] * (8 * cores if after else 1))
            wait_until_final(raw, MOST_S)
            if not after:
                time.sleep(0.1 if is_quick() else 1.5)
            for notes in Path(folder).iterdir():
                notes.unlink()
            began = time.monotonic()
            ask(Item(question=QUESTION, context=text))
            submitted = time.monotonic()
            wait_until_final(raw, MOST_S)
            ended = time.monotonic()
        batches = {number: _batches(Path(folder) / str(number)) for number in range(cores)}
    return {"submit_s": submitted - began} | describe(batches, submitted, ended)


def describe(batches: Mapping[int, list[list[float]]], began: float, ended: float) -> dict[str, float]:
    """Return the time of the document, its rows, and of the cores' times the mean: their wait for the first batch,
    between batches, and after the last.
    """
    found = {"document_s": ended - began, "rows": sum(row[2] for its in batches.values() for row in its)}
    first = [its[0][0] - began if its else ended - began for its in batches.values()]
    last = [ended - its[-1][1] if its else 0.0 for its in batches.values()]
    at_work = [sum(row[1] - row[0] for row in its) for its in batches.values()]
    stood = [ended - began - sum(parts) for parts in zip(first, last, at_work, strict=True)]
    for name, each in (("first", first), ("between", stood), ("last", last), ("at_work", at_work)):
        found |= {f"{name}_s": statistics.mean(each), f"{name}_most_s": max(each)}
    return found


def _batches(notes: Path) -> list[list[float]]:
    """Return begin, end and rows of each batch of a core."""
    return [list(map(float, line.split())) for line in notes.read_text().splitlines()] if notes.exists() else []


def main() -> int:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--megabytes", type=float, default=1.0)
    parser.add_argument("--row-ms", type=float, default=33.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--after", action="store_true", help="the cores answer a job of other questions just before")
    parser.add_argument(QUICK, action="store_true", help="seconds, a short document, and no figures kept")
    options = parser.parse_args()
    text = text_of(int(1e6 * (0.03 if is_quick() else options.megabytes)))
    row_s = 0.005 if is_quick() else options.row_ms / 1000
    rounds: list[dict[str, Any]] = []
    for number in range(1 if is_quick() else options.rounds):
        for cores in [2] if is_quick() else options.cores:
            found = read(cores, text, row_s, after=options.after)
            # What one core would take that did nothing but its batches.
            found["of_nth_part"] = found["document_s"] / (row_s * found["rows"] / cores)
            rounds.append({"round": number + 1, "cores": cores} | {name: round(n, 3) for name, n in found.items()})
            print(json.dumps(rounds[-1]), flush=True)
    times = {
        cores: statistics.median(each["document_s"] for each in rounds if each["cores"] == cores)
        for cores in dict.fromkeys(each["cores"] for each in rounds)
    }
    ratios = {cores: round(took * cores / times[1], 3) for cores, took in times.items() if 1 in times}
    figures = {"document_s": times, "of_nth_of_one_core": ratios, "rounds": rounds}
    keep("document_by_cores", {"megabytes": options.megabytes, "row_ms": options.row_ms} | figures)
    print(json.dumps({"document_s": times, "of_nth_of_one_core": ratios}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
