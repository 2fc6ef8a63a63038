"""The demo: serve, ask all of questions.jsonl, find passages by their meaning, run a handler. `make demo` runs it.

Exit status 1 if an answer is not one of those in expected.json, or another passage is found.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from operator import mul
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from corelane.cli.errors import exit_on_error
from corelane.cli.local import running_service
from corelane.client import Client
from corelane.domain.jobs import Result

HERE = Path(__file__).parent
DATA = HERE.parent / ".corelane"

#: The model that embeds texts, if its package is installed (`corelane compile` says how).
EMBEDDER = "all-minilm-l6-v2"

#: What is looked for among the passages, and the passage that it should be nearest to.
SOUGHT = {
    "two pilots who crossed an ocean": "history",
    "how to look after a household appliance": "manual",
    "colourful glow in the sky at night": "science",
    "a firm rents out refrigerated rooms": "contract",
    "a family on holiday in Asia": "unicode",
}

#: The handler beside this file, its name as a model, and what it says of texts.
HANDLER, SENTIMENT = "sentiment:Sentiment", "sentiment"
FELT = {"The room was clean and the staff kind": "good", "The food was bad and the waiter rude": "bad"}

#: Longest wait for the vectors, in seconds.
READY_S = 50.0

#: Width of the table where output is not a terminal, in columns.
WIDTH = 110


def ask_all(url: str) -> Iterator[tuple[dict[str, str], Result, float]]:
    """Ask every example question; yield each with its result and the milliseconds it took."""
    with Client(url) as client:
        for line in (HERE / "questions.jsonl").read_bytes().splitlines():
            item = orjson.loads(line)
            began = time.perf_counter()
            result = client.ask(item["question"], item["context"])
            yield item, result, (time.perf_counter() - began) * 1000


def show(rows: list[tuple[dict[str, str], Result, float]], expected: dict[str, list[str]], console: Console) -> bool:
    """Print the table; return whether every answer is right."""
    table = Table("", "question", "answer", "score", "windows", "ms", title="Corelane: examples/questions.jsonl")
    for column in table.columns[3:]:
        column.justify = "right"
    right = 0
    for item, result, milliseconds in rows:
        answer = result.answer
        good = (answer.text in expected[item["id"]]) if answer else not expected[item["id"]]
        right += good
        table.add_row(
            "[green]✓[/]" if good else "[red]✗[/]",
            item["question"],
            answer.text if answer else "[dim]no answer in the passage[/]",
            f"{answer.score if answer else result.no_answer_score or 0:.2f}",
            str(result.windows),
            f"{milliseconds:.0f}",
        )
    console.print(table)
    console.print(f"{right} of {len(rows)} answers as expected. Next: [bold]make serve[/], and README.md")
    return right == len(rows)


def embeds(console: Console) -> bool:
    """Compile the model that embeds texts, unless that was done before; return whether it can be served."""
    argv = [sys.executable, "-m", "corelane", "compile", EMBEDDER, "--if-missing", "--data", str(DATA)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: S603  # our own command
    if done.returncode:
        console.print(f"no embeddings: {done.stderr.strip()}", markup=False)
    return done.returncode == 0


def find_passages(url: str, console: Console) -> bool:
    """Embed the passages and what is looked for; print the nearest of each, and return whether all are right."""
    passages = {path.stem: path.read_text(encoding="utf-8") for path in sorted((HERE / "passages").glob("*.txt"))}
    texts = [*passages.values(), *SOUGHT]
    with Client(url) as client:
        # Long passages are read in windows; their vector is the mean.
        job = client.submit(
            [{"text": text} for text in texts], model=EMBEDDER, options={"long": "mean"}, wait_s=READY_S
        )
        vectors = [result.embedding for result in client.iter_results(job.id)]
    found, sought = dict(zip(passages, vectors, strict=False)), vectors[len(passages) :]
    table = Table("", "looked for", "nearest passage", "cosine", title=f"Corelane: examples/passages by {EMBEDDER}")
    right = 0
    for (text, expected), vector in zip(SOUGHT.items(), sought, strict=True):
        cosines = {name: sum(map(mul, vector, other)) for name, other in found.items()}
        nearest = max(cosines, key=lambda name: cosines[name])
        right += nearest == expected
        table.add_row("[green]✓[/]" if nearest == expected else "[red]✗[/]", text, nearest, f"{cosines[nearest]:.2f}")
    console.print(table)
    return right == len(SOUGHT)


def package() -> None:
    """Make a version of the handler, and let workers find its module; raise CalledProcessError."""
    # Those of the service and its workers: they are started by this process.
    os.environ |= {"PYTHONPATH": str(HERE), "CORELANE_HANDLERS": HANDLER}  # noqa: TID251
    argv = [sys.executable, "-m", "corelane", "models", "package", HANDLER, "--name", SENTIMENT, "--data", str(DATA)]
    subprocess.run(argv, capture_output=True, check=True)  # noqa: S603  # our own command


def run_handler(url: str, console: Console) -> bool:
    """Give texts to the handler; print what it says of each, and return whether all are right."""
    with Client(url) as client:
        job = client.submit([{"text": text} for text in FELT], model=SENTIMENT, wait_s=READY_S)
        said = [result.output["label"] for result in client.iter_results(job.id)]
    for text, label in zip(FELT, said, strict=True):
        console.print(f"{SENTIMENT}: {text}: [bold]{label}[/]")
    return said == list(FELT.values())


def main() -> int:
    """Run the demo; return the exit status."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    expected = orjson.loads((HERE / "expected.json").read_bytes())
    with exit_on_error():
        console.print("starting Redis, API, workers, keeper and Flower (the first time two models are compiled) …")
        embedders = [EMBEDDER] if embeds(console) else []
        package()
        with running_service(DATA, models=(*embedders, SENTIMENT)) as url:
            console.print(f"answering at {url} …")
            # Shown before the service stops, which takes a few seconds more.
            is_right = show(list(ask_all(url)), expected, console)
            is_right &= all(find_passages(url, console) for _ in embedders)
            is_right &= run_handler(url, console)
        return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
