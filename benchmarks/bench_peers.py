"""Corelane beside LitServe, Ray Serve, BentoML, FastAPI in the manner of AWS' sample, and plain Celery: the same model,
cores, questions and client, one after the other, three rounds in rotated order.

    python benchmarks/bench_peers.py [--rounds 3] [--seconds 8] [--only NAME,NAME] [--batch 8] [--quick]

``make bench-peers`` first makes the virtual environments of those that need one. How each is served stands in
``peers/servers/``.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.peers.catalogue import PEERS, SAMPLE
from benchmarks.peers.outcome import BULK, QUESTIONS, Outcome, Service, Shape, document, measure_of, rotated, table
from benchmarks.peers.pictures import draw
from benchmarks.peers.servers.given import Given
from benchmarks.peers.subjects import CorelaneSubject, PeerSubject, Subject
from benchmarks.questions import questions_of
from benchmarks.runs import QUICK, RESULTS, is_quick, service
from corelane.artifacts.manifest import Artifact, find_artifact, model_name
from corelane.cli.ports import port_is_free
from corelane.engine.cores import cpu_slots
from corelane.plugins.lab.figures import summarise
from corelane.plugins.lab.generator import run_load
from corelane.plugins.lab.load import Plan
from corelane.plugins.lab.machine import read_machine
from corelane.plugins.lab.schema import Load
from corelane.plugins.lab.senders import Target
from corelane.plugins.lab.workload import Questions

HERE = Path(__file__).parent
DATA = HERE.parent / ".corelane"
CHECKPOINT = HERE.parent / "models" / "qa-minilm"

#: Load before each measured part, in seconds; the processes are warm before.
WARMUP_S = 1.0

#: Jobs and batches measured, of BULK's size.
BULK_REQUESTS = 2

#: Ports for peers: below those that Linux gives to connections, which may take one before its server binds it.
PORTS = (20000, 29000)

#: A quick run asks this much.
QUICK_SHAPE = Shape("callers-4", "4 callers", 4)
QUICK_REQUESTS = 8


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="measured part of each shape")
    parser.add_argument("--limit", type=int, help="only the first questions of the file")
    parser.add_argument("--only", help="names of services, with commas between them")
    parser.add_argument("--batch", type=int, default=8, help="most questions in a batch of a peer")
    parser.add_argument("--wait-ms", type=int, default=2, help="longest wait of a peer for a batch to fill")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument(QUICK, action="store_true", help="seconds, few questions, and no figures kept")
    return parser.parse_args()


def subjects_of(only: str | None) -> list[Subject]:
    """Return what to measure; a quick run takes one that needs no environment of its own."""
    peers = (SAMPLE,) if is_quick() else PEERS
    subjects: list[Subject] = [CorelaneSubject(DATA), *(PeerSubject(peer) for peer in peers)]
    missing = [peer.name for peer in peers if not peer.is_installed()]
    wanted = only.split(",") if only else [subject.name for subject in subjects]
    unknown = set(wanted) - {subject.name for subject in subjects}
    if unknown:
        raise SystemExit(f"no such service: {', '.join(sorted(unknown))}")
    absent = [name for name in missing if name in wanted]
    if absent:
        raise SystemExit(f"not installed: {', '.join(absent)}; run `make bench-peers`")
    return [subject for subject in subjects if subject.name in wanted]


def compiled() -> Artifact:
    """Return the artifact that all serve; Corelane compiles it if there is none."""
    with service(DATA) as running:
        return find_artifact(running.data / "artifacts", model_name(running.model), "cpu")


def free_ports(count: int) -> int:
    """Return the first of some free ports side by side."""
    while True:
        port = random.randrange(*PORTS)
        if all(port_is_free("127.0.0.1", port + more) for more in range(count)):
            return port


@dataclass(frozen=True, slots=True)
class Run:
    """A service's turn in a round: the round's number, the place in it, what is asked, and for how long."""

    number: int
    place: int
    questions: Questions
    seconds: float

    def is_whole(self, shape: Shape) -> bool:
        """Whether a shape asks each question once: the first round's second, so that right answers compare."""
        return self.number == 0 and shape == QUESTIONS[1]

    def requests(self, shape: Shape) -> int | None:
        """Return how many requests a shape has; None if its time bounds it."""
        if is_quick():
            return QUICK_REQUESTS
        if self.is_whole(shape):
            return len(self.questions.asked)
        return BULK_REQUESTS if shape.way != "question" else None


def plan_of(subject: Subject, shape: Shape, run: Run) -> Plan:
    """Return the load of a shape."""
    requests = run.requests(shape)
    return Plan(
        load=Load(kind="closed", concurrency=shape.callers),
        way=shape.way,
        hearing="poll" if shape.way == "batch" else "wait",
        items_per_job=shape.items,
        warmup_s=0.0 if is_quick() else WARMUP_S,
        duration_s=run.seconds if requests is None else None,
        requests=requests,
        processes=1,
        sender=subject.sender,
    )


def shapes_of(subject: Subject) -> Sequence[Shape]:
    """Return how a service is asked."""
    if is_quick():
        return (QUICK_SHAPE,)
    return (*QUESTIONS, *BULK) if isinstance(subject, CorelaneSubject) else QUESTIONS


def measure(subject: Subject, about: Service, target: Target, run: Run) -> None:
    """Measure every shape of a service that runs."""
    for shape in shapes_of(subject):
        measured = run_load(target, run.questions, plan_of(subject, shape, run))
        figures = summarise(measured, answers=measured.answers)
        found = measure_of(figures, shape, run.number, run.place, is_whole=run.is_whole(shape))
        about.measures.append(found)
        right = "–" if found.exact is None else f"{found.exact:.0f} %"
        p95 = "–" if found.p95_s is None else f"{1000 * found.p95_s:.0f} ms"
        print(
            f"round {run.number + 1}  {about.title:<28} {shape.title:<40} {found.questions_per_s:6.1f} questions/s  "
            f"p95 {p95:>8}  right {right:>5}  failed {found.failed}",
            flush=True,
        )


def run_round(
    names: Sequence[str], subjects: Mapping[str, Subject], abouts: Mapping[str, Service], given: Given, run: Run
) -> None:
    """Measure services one after the other, each alone; a quick run, which measures nothing, starts all at once."""
    for group in [names] if is_quick() else [[name] for name in names]:
        first = free_ports(len(group) * given.workers)
        began = time.monotonic()
        with ExitStack() as stack:
            starting = {}
            for place, name in enumerate(group):
                mine = replace(given, port=first + place * given.workers, folder=str(Path(given.folder) / name))
                starting[name] = stack.enter_context(subjects[name].started(mine))
            for name, ready in starting.items():
                target = ready()
                print(f"round {run.number + 1}  {abouts[name].title} is up after {time.monotonic() - began:.0f} s")
                measure(subjects[name], abouts[name], target, replace(run, place=names.index(name)))


def main() -> int:
    """Measure all; keep the figures after each round, so that a run that is stopped has those of its whole rounds."""
    options = read_options()
    subjects = {subject.name: subject for subject in subjects_of(options.only)}
    abouts = {name: subject.about() for name, subject in subjects.items()}
    artifact = compiled()
    workers = 1 if is_quick() else len(cpu_slots())
    asked = questions_of(options.file)[: options.limit]
    questions = Questions(asked, options.file.name if options.file else "squad-test-public-v1.1")
    rounds = 1 if is_quick() else options.rounds
    order = [rotated(list(subjects), round_) for round_ in range(rounds)]
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        given = Given(
            artifact=str(artifact.path),
            checkpoint=str(CHECKPOINT),
            port=0,
            workers=workers,
            batch=options.batch,
            wait_ms=options.wait_ms,
            folder=folder,
        )
        for number, names in enumerate(order):
            run_round(names, subjects, abouts, given, Run(number, 0, questions, options.seconds))
            outcome = Outcome(
                created_at=datetime.now(UTC).isoformat(timespec="seconds"),
                rounds=number + 1,
                seconds=options.seconds,
                order=order[: number + 1],
                settings={"workers": workers, "threads": 1, "batch": options.batch, "wait_ms": options.wait_ms},
                machine=read_machine(),
                workload=questions.describe(),
                model={"version": artifact.manifest.version_id, "dtype": artifact.manifest.dtype},
                services=list(abouts.values()),
            )
            if not is_quick():
                keep(outcome, options.out)
    print(table(outcome))
    return 0


def keep(outcome: Outcome, folder: Path) -> None:
    """Write the results, the table and the picture."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "peers.json").write_text(outcome.model_dump_json(indent=2, by_alias=True) + "\n")
    (folder / "peers.md").write_text(document(outcome))
    draw(outcome, folder / "peers.png")


if __name__ == "__main__":
    # A run that is ended stops what it started, as one that Ctrl-C ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
