"""The demo: serve, ask every question of questions.jsonl, show the answers, stop. `make demo` runs it.

Exit status 1 if an answer is not one of those in expected.json.
"""

import sys
import time
from collections.abc import Iterator
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


def main() -> int:
    """Run the demo; return the exit status."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    expected = orjson.loads((HERE / "expected.json").read_bytes())
    with exit_on_error():
        console.print("starting Redis, API, workers, keeper and Flower (the first time the model is compiled) …")
        with running_service(DATA) as url:
            console.print(f"answering at {url} …")
            # Shown before the service stops, which takes a few seconds more.
            is_right = show(list(ask_all(url)), expected, console)
        return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
