"""How well forecasts hold: many mixed jobs, each as a dry run and then in earnest, and its bill against the forecast.

python benchmarks/forecast.py [--quick]

A hundred jobs in a mixed order, seeded: lone questions, 20 questions, 500 questions, documents, 10 questions in one of
twelve languages. Some more go before them, on a service that has answered nothing yet. Their figures are `young`, as
cores learn from work. Each job is forecast while nothing else runs, and then runs alone, as a forecast cannot know what
comes after it. Every fifth job runs a second time: by how much its bill differs is what no forecast can know. A core
costs what CORELANE_INSTANCE and the like say, else one dollar an hour. Writes `results/forecast.json`.
"""

import gzip
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.questions import ROOT, questions_of
from benchmarks.runs import QUICK, is_quick, keep, service
from corelane.client import Client
from corelane.domain.job_forecast import JobForecast
from corelane.domain.jobs import Job
from corelane.settings import Settings

#: Questions in twelve languages.
LANGUAGES = ROOT.parent / "shared" / "data" / "xquad-sample.json.gz"

#: Jobs of each kind that are counted, and those that go before.
COUNTED = {"lone": 36, "twenty": 28, "five hundred": 6, "document": 12, "languages": 18}
BEFORE = {"lone": 10, "twenty": 6, "five hundred": 1, "document": 3, "languages": 8}
QUICKLY = dict.fromkeys(COUNTED, 1)

#: Every so many jobs one runs again.
AGAIN = 5

#: Questions of a job of five hundred, and of a quick run.
MOST, FEW = 500, 5

#: Paragraphs of a document: at least, at most.
PARAGRAPHS = (8, 60)

#: What is compared.
FIGURES = ("windows", "tokens", "core_s", "cost", "finish_s")

Item = dict[str, str]


@dataclass
class Compared:
    """The forecasts of one kind of jobs against what they came to: forecast ÷ true − 1, by figure."""

    errors: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in FIGURES})
    inside: list[bool] = field(default_factory=list)

    def add(self, told: JobForecast, job: Job, seconds_told: tuple[float, float, float] | None) -> None:
        """Take in a job."""
        usage = job.usage
        if usage is None or job.timing is None:
            raise SystemExit(f"{job.id} has no bill")
        true: dict[str, float | None] = {"windows": usage.windows, "tokens": usage.tokens, "core_s": usage.core_s}
        true |= {"cost": None if usage.cost is None else usage.cost.amount}
        forecast = {name: getattr(told, name) for name in ("windows", "tokens", "core_s")}
        forecast |= {"cost": None if told.cost is None else told.cost.amount}
        if seconds_told is not None:
            true["finish_s"] = took_s = seconds_between(job.created_at, job.finished_at or "")
            forecast["finish_s"], earliest_s, latest_s = seconds_told
            self.inside.append(earliest_s <= took_s <= latest_s)
        for name, value in true.items():
            if value and forecast[name] is not None:
                self.errors[name].append(forecast[name] / value - 1)

    def describe(self) -> dict[str, Any]:
        """Return the median error, its absolute value, and that of nine in ten."""
        found: dict[str, Any] = {}
        for name, errors in self.errors.items():
            if errors:
                sizes = sorted(map(abs, errors))
                found[name] = {
                    "jobs": len(errors),
                    "median": round(statistics.median(errors), 4),
                    "median_size": round(statistics.median(sizes), 4),
                    "nine_in_ten": round(sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))], 4),
                }
        if self.inside:
            found["finish_inside_interval"] = round(sum(self.inside) / len(self.inside), 3)
        return found


def seconds_between(start: str, end: str) -> float:
    """Return the seconds from one time to another."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def read_languages() -> dict[str, list[Item]]:
    """Return questions by language; in a quick run, or where the file is absent, none."""
    if is_quick() or not LANGUAGES.exists():
        return {}
    found: dict[str, list[Item]] = {}
    for each in json.loads(gzip.decompress(LANGUAGES.read_bytes()))["data"]:
        found.setdefault(each["lang"], []).append({"question": each["question"], "context": each["context"]})
    return found


class Jobs:
    """Jobs of every kind, made of real questions."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._plain = [{"question": each.question, "context": each.context} for each in questions_of(None)]
        self._languages = read_languages()

    def make(self, kind: str) -> list[Item]:
        """Return the items of one job."""
        rng = self._rng
        if kind == "document":
            paragraphs = list(dict.fromkeys(item["context"] for item in self._plain))
            chosen = rng.choices(paragraphs, k=FEW if is_quick() else rng.randint(*PARAGRAPHS))
            return [{"question": rng.choice(self._plain)["question"], "context": "\n\n".join(chosen)}]
        if kind == "languages" and self._languages:
            return rng.sample(self._languages[rng.choice(sorted(self._languages))], 10)
        count = {"lone": 1, "five hundred": MOST}.get(kind, 20)
        return rng.choices(self._plain, k=min(count, FEW) if is_quick() else count)

    def order(self, counts: Mapping[str, int]) -> list[tuple[str, list[Item]]]:
        """Return so many jobs of each kind, in a mixed order."""
        kinds = [kind for kind, count in counts.items() for _ in range(count)]
        self._rng.shuffle(kinds)
        return [(kind, self.make(kind)) for kind in kinds]


def run(client: Client, jobs: Sequence[tuple[str, list[Item]]]) -> Iterator[tuple[str, JobForecast, Job, float]]:
    """Yield each job with its forecast, and the seconds between the two."""
    for kind, items in jobs:
        asked_s = time.time()
        told = client.forecast(items)
        job = client.submit(items, wait_s=50)
        yield kind, told, client.wait(job.id), asked_s


def changes() -> dict[str, object]:
    """Return settings of the service: a price, if the environment has none."""
    settings = Settings()
    is_set = settings.instance or settings.price_per_hour or settings.prices_file
    return {"log_level": "warning"} | ({} if is_set else {"price_per_hour": 1.0})


def main() -> int:
    """Measure and keep the figures."""
    jobs = Jobs(random.Random(1))
    before, counted = (QUICKLY, QUICKLY) if is_quick() else (BEFORE, COUNTED)
    kinds: dict[str, Compared] = {"all": Compared()} | {kind: Compared() for kind in counted}
    again: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="forecast-") as folder,
        service(Path(folder), None, **changes()) as running,
        Client(running.url) as client,
    ):
        young = Compared()
        for _, told, job, _ in run(client, jobs.order(before)):
            young.add(told, job, None)
        order = jobs.order(counted)
        for number, (kind, told, job, asked_s) in enumerate(run(client, order)):
            seconds = None
            if told.finish_at and told.earliest_at and told.latest_at:
                times = (told.finish_at, told.earliest_at, told.latest_at)
                finish_s, earliest_s, latest_s = (datetime.fromisoformat(each).timestamp() - asked_s for each in times)
                seconds = (finish_s, earliest_s, latest_s)
            for compared in (kinds["all"], kinds[kind]):
                compared.add(told, job, seconds)
            if number % AGAIN == 0 and job.usage is not None:
                repeated = client.wait(client.submit(order[number][1], wait_s=50).id)
                again.append(abs((repeated.usage.core_s if repeated.usage else 0.0) / job.usage.core_s - 1))
    figures: dict[str, Any] = {
        "same_job_again": {"jobs": len(again), "median_size": round(statistics.median(again), 4)}
    }
    figures |= {"jobs": sum(counted.values()), "young": young.describe()}
    figures |= {kind: compared.describe() for kind, compared in kinds.items()}
    keep("forecast", figures)
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    if unknown := [each for each in sys.argv[1:] if each != QUICK]:
        raise SystemExit(f"{unknown[0]} is no option; {QUICK} is the only one")
    sys.exit(main())
