"""A version replaced by another under constant load; an alias split in two; a version whose files are damaged.

    python benchmarks/rollout.py [FILE.json.gz] [--limit N] [--quick]

Questions of a SQuAD file go to `default` at a steady rate, a third of what the service does in bulk, from before the
first step to after the last: load the new version, move both aliases, unload the old one, then ask for a third one with
a file cut off. The new version has the old one's files under another fingerprint, so that a difference in latency is
the change's alone. Latencies count from the moment a question was due. The split is counted over 10,000 jobs of one
item each, without keys and with, on a service of the null engine.
"""

import json
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.questions import read_arguments
from benchmarks.runs import Service, is_quick, keep, service
from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, find_artifact, model_name
from corelane.client import Client
from corelane.client.bulk import answer_all
from corelane.domain.jobs import Item, Options
from corelane.domain.squad import Question
from corelane.errors import CorelaneError
from corelane.settings import Settings

HERE = Path(__file__).parent
DATA = HERE.parent / ".corelane"
OPTIONS = Options(no_answer=False)

#: Questions a second, as a share of what the service does in bulk.
LOAD = 0.35

#: Threads that ask, more than questions are ever under way.
ASKERS = 24

#: Load before the first step and after the last, in seconds.
BESIDE_S = 25

#: Time after the change in which the old version's memory is given back, in seconds.
SETTLE_S = 3

#: Jobs over which a split is counted, and the share of the newer version.
SPLIT_JOBS, SPLIT_SHARE = 10_000, 10

#: Load beside, settling and jobs of a split in a quick run.
QUICKLY = (0.3, 0.0, 20)

#: The other versions' fingerprints.
NEXT, BROKEN = "beefbeefbeef", "deaddeaddead"


def capacity(client: Client, questions: Sequence[Question]) -> float:
    """Questions per second in bulk."""
    items = [Item(question=question.question, context=question.context) for question in questions[:400]]
    list(answer_all(client, items[:64], options=OPTIONS))
    began = time.perf_counter()
    count = sum(1 for _ in answer_all(client, items, options=OPTIONS))
    return count / (time.perf_counter() - began)


def percentile_ms(latencies: Sequence[float], percent: int) -> float:
    """Return a percentile, in milliseconds."""
    return round(1000 * statistics.quantiles(latencies, n=100, method="inclusive")[percent - 1], 1)


@dataclass
class Steady:
    """Questions at a steady rate: when each was due, how long it took, and what answered or went wrong."""

    asked: list[tuple[float, float, str]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def between(self, begin: float, end: float) -> list[float]:
        """Latencies of those due in a stretch of time."""
        return [latency for due, latency, _ in self.asked if begin <= due < end]


@contextmanager
def steady_load(client: Client, questions: Sequence[Question], rate_per_s: float) -> Iterator[Steady]:
    """Ask until the block ends."""
    steady, stop, order = Steady(), threading.Event(), random.Random(1)

    def ask(due: float, question: Question) -> None:
        try:
            item = {"question": question.question, "context": question.context}
            job = client.submit([item], options={"no_answer": False}, wait_s=50)
            if job.counts.succeeded != 1:
                steady.failed.append(f"{job.id} {job.status}")
            steady.asked.append((due, time.perf_counter() - due, job.model))
        except CorelaneError as error:
            steady.failed.append(f"{error.code}: {error.detail}")

    def drive() -> None:
        began, number = time.perf_counter(), 0
        with ThreadPoolExecutor(ASKERS) as askers:
            while not stop.is_set():
                due = began + number / rate_per_s
                time.sleep(max(0.0, due - time.perf_counter()))
                askers.submit(ask, due, order.choice(questions))
                number += 1

    driver = threading.Thread(target=drive)
    driver.start()
    try:
        yield steady
    finally:
        stop.set()
        driver.join()


def copy_version(artifact: Artifact, fingerprint: str) -> str:
    """Copy the artifact under another fingerprint, older than the original; return its version."""
    folder = artifact.path.parent.parent / fingerprint / artifact.path.name
    shutil.copytree(artifact.path, folder)
    manifest = artifact.manifest.model_copy(update={"version": fingerprint, "created_at": "2020-01-01T00:00:00Z"})
    (folder / MANIFEST_NAME).write_text(manifest.model_dump_json())
    return manifest.version_id


def versions_of(artifact: Artifact) -> tuple[str, str]:
    """Return an artifact's version, and that of its copy under the next fingerprint."""
    manifest = artifact.manifest
    return manifest.version_id, manifest.model_copy(update={"version": NEXT}).version_id


def states(client: Client, version: str) -> list[str]:
    """How far each core is with a version."""
    return [m["state"] for core in client.cores() for m in core["models"] if m["version"] == version]


def until(condition: Callable[[], bool]) -> float:
    """Wait for it; the time then."""
    while not condition():
        time.sleep(0.2)
    return time.perf_counter()


def memory_mb(client: Client) -> list[int]:
    """Return the memory of each core's process."""
    return [round((core["memory_bytes"] or 0) / 1e6) for core in client.cores()]


def measure_swap(
    client: Client, artifact: Artifact, questions: Sequence[Question], beside_s: float, settle_s: float
) -> dict[str, object]:
    """All steps under load."""
    old = artifact.manifest.version_id
    rate_per_s = LOAD * capacity(client, questions)
    cores = len(client.cores())
    memory = {"before": memory_mb(client)}
    with steady_load(client, questions, rate_per_s) as steady:
        time.sleep(beside_s)
        new, broken = copy_version(artifact, NEXT), copy_version(artifact, BROKEN)
        file = artifact.path.parent.parent / BROKEN / artifact.path.name / artifact.manifest.buckets[0].file
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        marks = {"begin": time.perf_counter()}
        client.load_model(new)
        marks["loaded"] = until(lambda: states(client, new) == ["ready"] * cores)
        memory["both"] = memory_mb(client)
        for alias in ("default", artifact.manifest.name):
            client.set_alias(alias, new)
        marks["moved"] = time.perf_counter()
        client.unload_model(old)
        marks["unloaded"] = until(lambda: not states(client, old))
        time.sleep(settle_s)
        memory["after"] = memory_mb(client)
        client.load_model(broken)
        marks["refused"] = until(lambda: states(client, broken) == ["failed"] * cores)
        reasons = {m["reason"] for core in client.cores() for m in core["models"] if m["version"] == broken}
        client.unload_model(broken)
        time.sleep(beside_s)
        end = time.perf_counter()
    first, last = min(due for due, _, _ in steady.asked), end
    stretches = {
        "before": steady.between(first, marks["begin"]),
        "during": steady.between(marks["begin"], marks["refused"]),
        "after": steady.between(marks["refused"], last),
    }
    p99 = {name: percentile_ms(found, 99) for name, found in stretches.items()}
    return {
        "rate_per_s": round(rate_per_s, 1),
        "questions": {name: len(found) for name, found in stretches.items()},
        "failed": steady.failed,
        "answered_by": Counter(model for _, _, model in steady.asked),
        "p50_ms": {name: percentile_ms(found, 50) for name, found in stretches.items()},
        "p99_ms": p99,
        "p99_during_to_before": round(p99["during"] / p99["before"], 2),
        "load_s": round(marks["loaded"] - marks["begin"], 1),
        "unload_s": round(marks["unloaded"] - marks["moved"], 1),
        "core_memory_mb": memory,
        "model_mb": round(artifact.manifest.bytes / 1e6),
        "damaged_version": sorted(reasons),
    }


def measure_split(client: Client, versions: Sequence[str], jobs: int) -> dict[str, object]:
    """Shares of the newer version over many jobs, and whether keys stay."""
    older, newer = versions
    for version in versions:
        client.load_model(version)
    until(lambda: all("ready" in states(client, version) for version in versions))
    client.set_alias("canary", {older: 100 - SPLIT_SHARE, newer: SPLIT_SHARE})
    item = {"question": "who", "context": "ada"}

    def model_of(number: int | None) -> str:
        key = None if number is None else f"customer-{number}"
        return client.submit([item], model="canary", sticky_key=key).model

    with ThreadPoolExecutor(ASKERS) as askers:
        alone = list(askers.map(model_of, [None] * jobs))
        keyed, again = (list(askers.map(model_of, range(jobs))) for _ in range(2))
    return {
        "jobs": jobs,
        "wanted_percent": SPLIT_SHARE,
        "percent": round(100 * alone.count(newer) / jobs, 2),
        "percent_of_keys": round(100 * keyed.count(newer) / jobs, 2),
        "keys_that_moved": sum(one != other for one, other in zip(keyed, again, strict=True)),
    }


def copy_artifact(data: Path) -> None:
    """Copy the default model's artifact into a folder of its own; compiled first if it never was."""
    settings = Settings(data_dir=DATA)
    try:
        artifact = find_artifact(settings.artifact_root, model_name(settings.model), "cpu")
    except CorelaneError:
        from compile.build import build

        artifact = build(settings.model, settings=settings)
    copy = Settings(data_dir=data).artifact_root / artifact.path.relative_to(settings.artifact_root)
    shutil.copytree(artifact.path, copy)


def artifact_of(running: Service) -> Artifact:
    """Return the artifact that a service began with."""
    return find_artifact(Settings(data_dir=running.data).artifact_root, model_name(running.model), "cpu")


def main() -> int:
    """Measure and keep the figures."""
    questions = read_arguments(__doc__)
    beside_s, settle_s, jobs = QUICKLY if is_quick() else (BESIDE_S, SETTLE_S, SPLIT_JOBS)
    with tempfile.TemporaryDirectory() as folder:
        with service(Path(folder), copy_artifact) as running, Client(running.url) as client:
            artifact = artifact_of(running)
            figures = {"swap": measure_swap(client, artifact, questions, beside_s, settle_s)}
        with service(Path(folder) / "null", target="null") as running, Client(running.url) as client:
            pair = ("null@0", "null@1") if running.target == "null" else versions_of(artifact)
            figures["split"] = measure_split(client, pair, jobs)
    keep("rollout", figures)
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
