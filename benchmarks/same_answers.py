"""Whether two states of Corelane answer alike: jobs of all shapes, compared result by result, to the last bit.

    python benchmarks/same_answers.py --before CHECKOUT [--quick]

Both services run the same artifact, each on a data folder of its own with a copy of it. A result is *equal* if all that
it says is: text, offsets, scores, candidates and errors. It is *the same answer* if text and offsets are. In bf16 a
score depends on the length that a window is padded to and on the batch that it runs in; both services choose them by
what else waits. So each service has one core, and jobs are sent one
after the other.
"""

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.checkouts import AFTER, BEFORE, add_before, checkouts, serving
from benchmarks.questions import ROOT, item, questions_of
from benchmarks.runs import QUICK, is_quick, keep
from corelane.client import Client
from corelane.plugins.lab.machine import read_machine

#: What a result says of the answer; the rest says how it came about.
SAID = ("id", "index", "status", "answer", "answers", "no_answer_score", "windows", "error")

#: Characters of the documents.
DOCUMENTS = (20_000, 200_000)


def shapes(file: Path | None, seed: int) -> Iterator[tuple[str, list[dict[str, Any]], dict[str, Any]]]:
    """Yield name, items and options of each job."""
    asked = questions_of(file)
    random.Random(seed).shuffle(asked)
    items = [{"id": str(number), **item(question)} for number, question in enumerate(asked)]
    if is_quick():
        yield "lone question", items[:1], {}
        yield "job of 4", items[:4], {}
        return
    for number in range(40):
        yield "lone question", items[number : number + 1], {}
    for size in (2, 5, 20, 64, 256):
        yield f"job of {size}", items[:size], {}
    yield "always an answer", items[:64], {"no_answer": False}
    yield "five candidates", items[64:128], {"top_k": 5}
    yield "short answers, narrow overlap", items[128:160], {"doc_stride": 64, "max_answer_tokens": 8}
    passages = list(dict.fromkeys(question.context for question in asked))
    for size in DOCUMENTS:
        text, number = "", 0
        while len(text) < size:
            text += passages[number % len(passages)] + "\n\n"
            number += 1
        yield f"document of {size:,} characters", [{"question": items[7]["question"], "context": text[:size]}], {}
    yield "a question too long", [items[3], {"question": "Who? " * 200, "context": "Ada."}, items[4]], {}


def said(result: dict[str, Any]) -> dict[str, Any]:
    """Return what a result says of the answer."""
    return {key: result[key] for key in SAID if key in result}


def span(result: dict[str, Any]) -> tuple[Any, ...]:
    """Return text and offsets, or the error."""
    answer, error = result["answer"] or {}, result["error"] or {}
    return answer.get("text"), answer.get("start"), answer.get("end"), error.get("code")


def ask(client: Client, items: list[dict[str, Any]], options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results of a job."""
    job = client.wait(client.submit(items, options=options).id)
    return [each.model_dump(mode="json") for each in client.iter_results(job.id)]


def main() -> int:
    """Compare, print and keep the figures; return 1 if an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--data", type=Path, default=ROOT / ".corelane", help="data folder whose artifacts both serve")
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument(QUICK, action="store_true", help="seconds, few questions, and no figures kept")
    add_before(parser)
    options = parser.parse_args()
    found: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory(prefix="same-") as folder, ExitStack() as stack:
        clients = {}
        for name, checkout in checkouts(options.before).items():
            data = Path(folder) / name
            if (options.data / "artifacts").is_dir():
                shutil.copytree(options.data / "artifacts", data / "artifacts")
            running = stack.enter_context(serving(name, checkout, data, cores=1))
            clients[name] = stack.enter_context(Client(running.url))
        for shape, items, chosen in shapes(options.file, options.seed):
            results = {name: ask(client, items, chosen) for name, client in clients.items()}
            counts = found.setdefault(shape, {"results": 0, "equal": 0, "same_answer": 0})
            for one, other in zip(results.get(BEFORE, results[AFTER]), results[AFTER], strict=True):
                counts["results"] += 1
                counts["equal"] += said(one) == said(other)
                counts["same_answer"] += span(one) == span(other)
    print("| shape | results | equal to the last bit | same answer |\n|---|---|---|---|")
    for shape, counts in found.items():
        print(f"| {shape} | {counts['results']} | {counts['equal']} | {counts['same_answer']} |")
    keep("same_answers", {"machine": read_machine().model_dump(mode="json"), "shapes": found})
    return int(any(counts["same_answer"] < counts["results"] for counts in found.values()))


if __name__ == "__main__":
    sys.exit(main())
