"""Corelane and LitServe, Ray Serve, BentoML, FastAPI in the manner of AWS' sample, and plain Celery: the same model,
cores, questions and client, one after the other, in rotated order.

    python benchmarks/bench_peers.py [FILE.json.gz] [--rounds 3] [--seconds 8] [--only NAME,NAME] [--batch 8] [--quick]

``make bench-peers`` first makes the virtual environments of those that need one. How each is served stands in
``peers/servers/``, how each is asked in ``peers/asking.py``.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.callers import Ask, closed_loop
from benchmarks.harness import MODEL, ROOT, about_machine, compiled, is_quick, parser_of, serving
from benchmarks.peers import asking
from benchmarks.peers.catalogue import PEERS, SAMPLE
from benchmarks.peers.outcome import CALLERS, OURS, Measure, Service, rotated, table
from benchmarks.peers.peer import Peer, running
from benchmarks.peers.servers.given import Given
from benchmarks.questions import Question, questions_of
from corelane.artifacts.finding import find_artifact
from corelane.cli.ports import port_is_free
from corelane.engine.cores import cpu_slots

#: How long load runs before each measured part, in seconds; the processes are warm by then.
WARM_UP_S = 1.0

#: Ports for peers: below those that Linux gives to connections, which may take one before its server binds it.
PORTS = (20000, 29000)

#: Number of callers who ask each question of the file once in the first round, so that right answers are comparable.
WHOLE = CALLERS[1]

#: Callers and questions of a quick run.
QUICK_CALLERS, QUICK_REQUESTS = 4, 8


@dataclass(frozen=True, slots=True)
class Asked:
    """What every service is asked: the questions in one order, and for how long by each number of callers."""

    questions: list[Question]
    seconds: float


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = parser_of(__doc__, takes_questions=True)
    parser.add_argument("--rounds", type=int, default=1 if is_quick() else 3)
    parser.add_argument("--seconds", type=float, default=8.0, help="measured part of each number of callers")
    parser.add_argument("--limit", type=int, help="only the first questions of the file")
    parser.add_argument("--only", help="names of services, with commas between them")
    parser.add_argument("--batch", type=int, default=8, help="most questions in a batch of a peer")
    parser.add_argument("--wait-ms", type=int, default=2, help="longest wait of a peer for a batch to fill")
    return parser.parse_args()


def peers_of(only: str | None) -> dict[str, Peer | None]:
    """Return what to measure, Corelane as None; a quick run takes a peer that needs no environment of its own."""
    found: dict[str, Peer | None] = {OURS: None} | {peer.name: peer for peer in ((SAMPLE,) if is_quick() else PEERS)}
    wanted = only.split(",") if only else list(found)
    if unknown := set(wanted) - set(found):
        raise SystemExit(f"no such service: {', '.join(sorted(unknown))}")
    if absent := [name for name in wanted if (peer := found[name]) and not peer.is_installed()]:
        raise SystemExit(f"not installed: {', '.join(absent)}; run `make bench-peers`")
    return {name: found[name] for name in wanted}


def free_ports(count: int) -> int:
    """Return the first of ``count`` consecutive free ports."""
    while True:
        port = random.randrange(*PORTS)
        if all(port_is_free("127.0.0.1", port + more) for more in range(count)):
            return port


@contextmanager
def started(peer: Peer | None, given: Given) -> Iterator[Callable[[], Ask]]:
    """Run a peer, or Corelane with the same artifact, for the length of a block; yield what makes its callers."""
    folder = Path(given.folder)
    if peer is None:
        artifacts = next(parent for parent in Path(given.artifact).parents if parent.name == "artifacts")
        shutil.copytree(artifacts, folder / "artifacts", dirs_exist_ok=True)
        with serving(folder) as service:
            yield asking.corelane([service.url])
    else:
        mine = replace(given, port=free_ports(given.workers))
        with running(peer, mine) as ready:
            yield peer.asker(ready())


def measure(make_ask: Callable[[], Ask], about: Service, asked: Asked, *, is_first: bool) -> None:
    """Measure every number of callers of a service that runs."""
    for callers in (QUICK_CALLERS,) if is_quick() else CALLERS:
        is_whole = is_first and callers == WHOLE
        requests = QUICK_REQUESTS if is_quick() else len(asked.questions) if is_whole else None
        if requests is None:
            load = closed_loop(make_ask, asked.questions, callers, seconds=asked.seconds, warm_up_s=WARM_UP_S)
        else:
            load = closed_loop(make_ask, asked.questions, callers, requests=requests)
        figures, failed = load.figures(), len(load.failures)
        about.measures.append(
            Measure(callers, figures["per_s"], figures["p95_ms"], len(load.taken), load.right, failed, is_whole)
        )
        print(
            f"{about.title:<28} {callers:>2} callers {figures['per_s']:7.1f}/s  p95 {figures['p95_ms']:6.0f} ms", end=""
        )
        print(f"  right {load.right} of {len(load.taken)}  failed {failed} {load.failures[:1]}", flush=True)


def main() -> int:
    """Measure all and print the table."""
    options = read_options()
    peers = peers_of(options.only)
    abouts = {
        name: Service(name, peer.title, peer.version()) if peer else Service(name, "Corelane", version("corelane"))
        for name, peer in peers.items()
    }
    questions = questions_of(options.file)[: options.limit]
    random.Random(0).shuffle(questions)
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        artifacts, model = compiled(Path(folder) / "compiled")
        given = Given(
            artifact=str(find_artifact(artifacts, model, "cpu").path),
            checkpoint=str(ROOT / "models" / MODEL),
            port=0,
            workers=1 if is_quick() else len(cpu_slots()),
            batch=options.batch,
            wait_ms=options.wait_ms,
            folder=folder,
        )
        for number in range(options.rounds):
            print(f"round {number + 1}", flush=True)
            for name in rotated(list(peers), number):
                with started(peers[name], replace(given, folder=f"{folder}/{name}")) as make_ask:
                    measure(make_ask, abouts[name], Asked(questions, options.seconds), is_first=number == 0)
    print(
        f"\n{about_machine()}; medians of {options.rounds}; batches of up to {given.batch}, {given.workers} processes"
    )
    print(f"\n{table(list(abouts.values()))}")
    return 0


if __name__ == "__main__":
    # A run that is ended stops what it started, as one that Ctrl-C ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
