"""The demo: serve, ask every question of questions.jsonl, show the answers, stop. `make demo` runs it.

Exit status 1 if an answer is not one of those in expected.json.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from corelane.cli.redis_server import free_port
from corelane.client import Client
from corelane.engine.cores import cpu_slots
from corelane.errors import ServiceUnreachable
from corelane.jobs import Result

HERE = Path(__file__).parent
DATA = HERE.parent / ".corelane"
LOG = DATA / "demo.log"

#: Compiling on a slow machine takes a minute or two, in seconds.
READY_S = 600


@contextmanager
def running_service(console: Console) -> Iterator[str]:
    """Corelane on free ports, its log in a file; stopped at the end."""
    DATA.mkdir(exist_ok=True)
    port = free_port("127.0.0.1", 8000)
    argv = [sys.executable, "-m", "corelane", "serve", "--port", str(port), "--data", str(DATA)]
    with LOG.open("wb") as log:
        service = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
    try:
        with console.status("starting Redis, API, workers, keeper and Flower (the first time the model is compiled) …"):
            wait_until_ready(f"http://127.0.0.1:{port}", service)
        yield f"http://127.0.0.1:{port}"
    finally:
        with console.status("stopping …"):
            service.send_signal(signal.SIGINT)
            service.wait(60)


def wait_until_ready(url: str, service: subprocess.Popen[bytes]) -> None:
    """Return once every core can answer; raises SystemExit with the log's end if the service ends first."""
    deadline = time.monotonic() + READY_S
    with Client(url, max_retries=0) as client:
        while time.monotonic() < deadline and service.poll() is None:
            try:
                states = [core["state"] for core in client.cores()]
                if sum(state in ("idle", "busy") for state in states) == len(cpu_slots()):
                    return
            except ServiceUnreachable:
                pass
            time.sleep(0.2)
    raise SystemExit("the service did not start:\n" + LOG.read_text(errors="replace")[-3000:])


def ask_all(url: str) -> Iterator[tuple[dict[str, str], Result, float]]:
    """Every example question with its result and the milliseconds it took."""
    with Client(url) as client:
        for line in (HERE / "questions.jsonl").read_bytes().splitlines():
            item = orjson.loads(line)
            began = time.perf_counter()
            result = client.ask(item["question"], item["context"])
            yield item, result, (time.perf_counter() - began) * 1000


def main() -> int:
    """Run the demo; the exit status."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    expected = orjson.loads((HERE / "expected.json").read_bytes())
    table = Table("", "question", "answer", "score", "windows", "ms", title="Corelane: examples/questions.jsonl")
    for column in table.columns[3:]:
        column.justify = "right"
    right = total = 0
    with running_service(console) as url:
        for item, result, milliseconds in ask_all(url):
            answer = result.answer
            good = (answer.text in expected[item["id"]]) if answer else not expected[item["id"]]
            right, total = right + good, total + 1
            table.add_row(
                "[green]✓[/]" if good else "[red]✗[/]",
                item["question"],
                answer.text if answer else "[dim]no answer in the passage[/]",
                f"{answer.score:.2f}" if answer else f"{result.no_answer_score or 0:.2f}",
                str(result.windows),
                f"{milliseconds:.0f}",
            )
    console.print(table)
    console.print(f"{right} of {total} answers as expected. Next: [bold]make serve[/], then README.md")
    return 0 if right == total else 1


if __name__ == "__main__":
    sys.exit(main())
