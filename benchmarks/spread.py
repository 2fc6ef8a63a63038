"""Small jobs and a document on idle cores: how long they take, and whether the document's answers are one core's.

    python benchmarks/spread.py [--before CHECKOUT] [--rounds 3 | --short] [--megabytes 1] [--quick]

The built-in model; questions of the public SQuAD test file; a document made of its passages. The jobs run on all
cores, one after the other; the document on one core, then on all. With ``--before`` the service of another checkout is
measured in turn with this one.

In bf16 a score depends on the batch that a window runs in, and so on the time. To the last bit one core and several are
compared with batches of one row, on a tenth of the document.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.checkouts import AFTER, BEFORE, ROOT, Serving, checkouts, in_turn, serving
from benchmarks.options import parser_of, rounds_of
from benchmarks.questions import item, questions_of
from benchmarks.runs import is_quick, keep
from corelane.client import Client
from corelane.domain.jobs import Item, Result
from corelane.engine.cores import cpu_slots
from corelane.plugins.lab.machine import read_machine
from corelane.quality.squad import Question

#: Questions of the small jobs, and how many of each are measured.
SMALL, JOBS = (5, 20, 64), 10

#: Questions asked about the document: with one answer, and with several and their offsets.
ASKED: tuple[dict[str, Any], ...] = (
    {"no_answer": False},
    {"top_k": 3, "offsets": ("utf16", "bytes"), "no_answer": False},
)

#: So short a time for a batch that it has one row, in seconds.
ONE_ROW_S = 1e-6

#: A document takes at most this long on one core, in seconds.
DOCUMENT_S = 1800


def run_jobs(client: Client, asked: Sequence[Question], items: int, count: int) -> list[float]:
    """Return the seconds that jobs of so many questions took, one after the other."""
    taken = []
    for number in range(count):
        first = number * items % max(1, len(asked) - items)
        body = [item(question) for question in asked[first : first + items]]
        began = time.perf_counter()
        client.wait(client.submit(body, options={"no_answer": False}).id)
        taken.append(time.perf_counter() - began)
    return taken


def document_of(asked: Sequence[Question], size: int) -> str:
    """Return passages one after the other, of so many characters in all."""
    passages = list(dict.fromkeys(question.context for question in asked))
    whole = "\n".join(passages)
    return (whole * (size // len(whole) + 1))[:size]


def read_document(client: Client, text: str, question: str) -> tuple[dict[str, float], Result]:
    """Return the seconds that the document took with one question, windows and core seconds; and the result."""
    began = time.perf_counter()
    job = client.submit([Item(question=question, context=text)], options=ASKED[0])
    job = client.wait(job.id, timeout_s=DOCUMENT_S)
    found = {"document_s": time.perf_counter() - began}
    if job.usage is not None:
        found |= {"windows": float(job.usage.windows or 0), "core_s": job.usage.core_s}
    [result] = client.iter_results(job.id)
    return found, result


def answers_to_the_bit(data: Path, text: str, question: str, **settings: object) -> list[dict[str, Any]]:
    """Return what this state's service answers about the document where each batch has one row."""
    answers = []
    with (
        serving(AFTER, ROOT, data, latency_target_s=ONE_ROW_S, **settings) as running,
        Client(running.url) as client,
    ):
        for options in ASKED:
            job = client.submit([Item(question=question, context=text)], options=options)
            [result] = client.iter_results(client.wait(job.id, timeout_s=DOCUMENT_S).id)
            answers.append(result.model_dump(mode="json"))
    return answers


def measure(running: Serving, asked: Sequence[Question], text: str) -> tuple[dict[str, float], Result]:
    """Measure everything of a service on all cores."""
    figures: dict[str, float] = {}
    with Client(running.url) as client:
        run_jobs(client, asked, 2 if is_quick() else 64, 1)
        for items in SMALL[:1] if is_quick() else SMALL:
            taken = run_jobs(client, asked, items, 2 if is_quick() else JOBS)
            figures[f"job_of_{items}_s"] = statistics.median(taken)
        found, result = read_document(client, text, asked[0].question)
    return figures | {f"all_{name}": value for name, value in found.items()}, result


def main() -> int:
    """Measure, print and keep the figures; return 1 where answers differ."""
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--megabytes", type=float, default=1.0)
    options = parser.parse_args()
    asked = questions_of(options.file)
    text = document_of(asked, int(1e6 * (0.01 if is_quick() else options.megabytes)))
    found, cores = checkouts(options.before), len(cpu_slots())
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="spread-") as folder:
        for number, name in in_turn(list(found), rounds_of(options)):
            data = options.data if name == AFTER else Path(folder) / name
            with serving(name, found[name], data) as running:
                figures, several = measure(running, asked, text)
            with serving(name, found[name], data, cores=1) as running, Client(running.url) as client:
                run_jobs(client, asked, 2, 1)
                one, alone = read_document(client, text, asked[0].question)
            figures |= {f"one_{key}": value for key, value in one.items()}
            figures["of_nth_part"] = figures["all_document_s"] / (figures["one_document_s"] / cores)
            figures["same_answer"] = float(several.answer == alone.answer)
            rounds.append({"round": number + 1, "name": name} | figures)
            print(rounds[-1], flush=True)
    tenth = text[: max(len(text) // 10, 10_000)]
    one_core, all_cores = (answers_to_the_bit(options.data, tenth, asked[0].question, **n) for n in ({"cores": 1}, {}))
    same = one_core == all_cores
    keys = [key for key in rounds[0] if key not in ("round", "name")]
    medians = {
        name: {key: statistics.median(each[key] for each in rounds if each["name"] == name) for key in keys}
        for name in found
    }
    machine = read_machine().model_dump(mode="json")
    keep("spread", {"machine": machine, "cores": cores, "same": same, "medians": medians, "rounds": rounds})
    for key in keys:
        print(f"{key:24}", *(f"{name} {medians[name][key]:9.4g}" for name in (BEFORE, AFTER) if name in medians))
    print(
        "one core and all of them answer alike to the last bit" if same else "ONE CORE AND SEVERAL ANSWER DIFFERENTLY"
    )
    return int(not same)


if __name__ == "__main__":
    sys.exit(main())
