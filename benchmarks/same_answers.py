"""Compare the answers of two states of Corelane: jobs of all shapes, compared result by result, to the last bit.

    python benchmarks/same_answers.py [FILE.json.gz] --before CHECKOUT [--quick]

Both services run the same artifact, each on a data folder of its own with a copy of it. A result is *equal* if all that
it says is: text, offsets, scores, candidates and errors. It is *the same answer* if text and offsets are. In bf16 a
score depends on the length that a window is padded to and on the batch that it runs in; both services choose them by
what else waits. So each service has one core, and jobs are sent one after the other.
"""

import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.harness import AFTER, BEFORE, about_machine, checkouts, compiled, is_quick, parser_of, serving
from benchmarks.questions import questions_of
from corelane.client import Client

#: What a result says of the answer; the rest says how it came about.
SAID = ("id", "index", "status", "answer", "answers", "no_answer_score", "windows", "error")

#: Characters of the documents.
DOCUMENTS = (20_000, 200_000)


def shapes(file: Path | None, seed: int) -> Iterator[tuple[str, list[dict[str, Any]], dict[str, Any]]]:
    """Yield name, items and options of each job."""
    asked = questions_of(file)
    random.Random(seed).shuffle(asked)
    items = [{"id": str(number), **question.item()} for number, question in enumerate(asked)]
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
    """Compare and print; return 1 if an answer differs."""
    parser = parser_of(__doc__, rounds=1, takes_questions=True)
    parser.add_argument("--seed", type=int, default=17)
    options = parser.parse_args()
    found: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory(prefix="same-") as folder, ExitStack() as stack:
        artifacts, model = compiled(Path(folder))
        clients = {}
        for name, checkout in checkouts(options.before).items():
            data = Path(folder) / name
            shutil.copytree(artifacts, data / "artifacts")
            running = stack.enter_context(serving(data, name, checkout, cores=1, model=model))
            clients[name] = stack.enter_context(Client(running.url))
        for shape, items, chosen in shapes(options.file, options.seed):
            results = {name: ask(client, items, chosen) for name, client in clients.items()}
            counts = found.setdefault(shape, {"results": 0, "equal": 0, "same_answer": 0})
            for one, other in zip(results.get(BEFORE, results[AFTER]), results[AFTER], strict=True):
                counts["results"] += 1
                counts["equal"] += said(one) == said(other)
                counts["same_answer"] += span(one) == span(other)
    print(about_machine())
    print("| shape | results | equal to the last bit | same answer |\n|---|---|---|---|")
    for shape, counts in found.items():
        print(f"| {shape} | {counts['results']} | {counts['equal']} | {counts['same_answer']} |")
    return int(any(counts["same_answer"] < counts["results"] for counts in found.values()))


if __name__ == "__main__":
    sys.exit(main())
