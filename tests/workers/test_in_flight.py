"""What is in progress on a core: claims opened, batches run, outcomes collected, whatever happens in between."""

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from corelane.artifacts.manifest import Artifact
from corelane.domain.dispatch import BESIDE_TOKENS, SMALL_TOKENS, Ref
from corelane.engine.backends.protocol import Logits, Model, WindowBatch
from corelane.engine.null import NullRunner
from corelane.engine.runner import Runner
from corelane.engine.task import RunnerLimits
from corelane.metrics.recorder import Recorder
from corelane.plugins.accounting.usage_meter import UsageMeter
from corelane.store.dispatch import Claim, ClaimedSlice, Exchange, ExchangeRequest
from corelane.tasks.question_answering.options import AnswerOptions
from tests.tools.fakes import FixedBackend
from workers.core.in_flight import InFlight
from workers.core.measures import CoreMetrics
from workers.core.observer import CoreBatch, Observers, Trip


@pytest.fixture
def runner(tiny_artifact: Artifact) -> Iterator[Runner]:
    runner = Runner.open(FixedBackend(), tiny_artifact)
    yield runner
    runner.close()


def make_claim(lease: str, version: str, contexts: list[list[str]]) -> tuple[Claim, list[ClaimedSlice]]:
    """One ref per list of contexts, each of a job of its own."""
    refs = [Ref(f"job_{lease}{n}", "public", 1, 0, 0, len(texts), 64 * len(texts)) for n, texts in enumerate(contexts)]
    slices = [
        ClaimedSlice(
            ref, version, [(f"i{i}", "who", text) for i, text in enumerate(texts)], AnswerOptions(no_answer=False)
        )
        for ref, texts in zip(refs, contexts, strict=True)
    ]
    return Claim(lease, tuple((ref, version) for ref in refs)), slices


def run_batch(in_flight: InFlight) -> int:
    """Run one batch; return the number of items answered."""
    return finish(in_flight, in_flight.start())


def finish(in_flight: InFlight, batch: CoreBatch) -> int:
    """Finish a batch; return the number of items answered."""
    in_flight.finish(batch)
    return batch.answered


def commit(in_flight: InFlight, reply: Exchange) -> None:
    """Commit all that is done, as the drain does."""
    request = ExchangeRequest(commits=in_flight.done, jobs=in_flight.pending.jobs)
    in_flight._observers.contributes(request)
    trip = Trip(request, reply, 0.0)
    in_flight._observers.committed(trip)
    in_flight.settle(trip)


def run_out(in_flight: InFlight) -> None:
    while not in_flight.is_empty:
        run_batch(in_flight)


def test_every_item_of_every_claim_is_answered_in_its_place(runner: Runner) -> None:
    in_flight = InFlight({runner.version: runner})
    in_flight.add(*make_claim("a", runner.version, [["ada wrote", "the river " * 200], ["paris"]]))
    in_flight.add(*make_claim("b", runner.version, [["berlin " * 300]]))
    assert in_flight.leases == ["a", "b"]
    run_out(in_flight)
    assert {lease: len(outcomes) for lease, outcomes in in_flight.done.items()} == {"a": 2, "b": 1}
    for outcomes in in_flight.done.values():
        for outcome in outcomes:
            assert [result["index"] for result in outcome.results] == list(range(outcome.ref.count))
            assert [result["id"] for result in outcome.results] == [f"i{n}" for n in range(outcome.ref.count)]
    assert runner.waiting_tokens(10**9) == 0


def test_document_counts_for_its_share_only(runner: Runner) -> None:
    in_flight = InFlight({runner.version: runner})
    in_flight.add(*make_claim("document", runner.version, [["the river was red " * 500]]))
    assert in_flight.waiting_tokens(512) == 512
    assert in_flight.waiting_tokens(10**9) > 2000


def test_job_nobody_waits_for_stops_and_frees_its_claim(runner: Runner) -> None:
    in_flight = InFlight({runner.version: runner})
    in_flight.add(*make_claim("a", runner.version, [["the river " * 500], ["ada"]]))
    in_flight.drop_jobs({"job_a0"})
    assert [outcome.results for outcome in in_flight.done["a"]] == [[]]
    run_out(in_flight)
    assert [len(outcome.results) for outcome in in_flight.done["a"]] == [0, 1]


def test_lost_lease_takes_its_open_work_along(runner: Runner) -> None:
    in_flight = InFlight({runner.version: runner})
    in_flight.add(*make_claim("a", runner.version, [["ada"], ["the river " * 500]]))
    run_batch(in_flight)
    commit(in_flight, Exchange({"a": 1}, set(), None, lost={"a"}))
    assert in_flight.is_empty
    assert (in_flight.done, in_flight.leases) == ({}, [])
    assert runner.waiting_tokens(10**9) == 0


def test_slice_that_was_committed_before_leaves_the_others_of_its_lease(runner: Runner) -> None:
    in_flight = InFlight({runner.version: runner})
    in_flight.add(*make_claim("a", runner.version, [["ada"], ["the river " * 500]]))
    run_batch(in_flight)
    commit(in_flight, Exchange({"a": 1}, set(), None))
    assert in_flight.leases == ["a"]
    run_out(in_flight)
    assert [outcome.ref.job for outcome in in_flight.done["a"]] == ["job_a1"]


def test_what_is_unfinished_is_told_and_no_longer_in_progress(runner: Runner) -> None:
    in_flight = InFlight({runner.version: runner})
    claim, slices = make_claim("a", runner.version, [["ada"], ["the river " * 500]])
    in_flight.add(claim, slices)
    run_batch(in_flight)
    [(ref, version)] = in_flight.take_unfinished()["a"]
    assert (ref.key, version) == (claim.refs[1][0].key, runner.version)
    assert ref.tokens > 1000
    assert in_flight.is_empty


def test_charge_follows_what_was_read_and_is_told_once_where_it_is_far_off(runner: Runner) -> None:
    in_flight = InFlight({runner.version: runner})
    in_flight.add(*make_claim("a", runner.version, [["ada", "paris"], ["x?! " * 2000, "ada"]]))
    [(lease, ref)] = in_flight.pending.corrections()
    windows = in_flight.waiting_tokens(10**9)
    assert (lease, ref.job) == ("a", "job_a1")
    assert ref.tokens > 6000
    assert in_flight.pending.corrections() == []
    run_out(in_flight)
    charged = {outcome.ref.job: outcome.ref.tokens for outcome in in_flight.done["a"]}
    assert charged == {"job_a0": 128, "job_a1": ref.tokens}
    assert sum(charged.values()) >= windows


def test_charge_that_was_far_too_high_is_corrected_too(runner: Runner) -> None:
    in_flight = InFlight({runner.version: runner})
    claim, [ada] = make_claim("a", runner.version, [["ada"]])
    in_flight.add(claim, [replace(ada, ref=replace(ada.ref, tokens=5000))])
    [(_, ref)] = in_flight.pending.corrections()
    assert ref.tokens == 64


def test_item_that_is_refused_is_charged_what_was_estimated(tiny_artifact: Artifact) -> None:
    runner = Runner.open(FixedBackend(), tiny_artifact, RunnerLimits(max_windows=10))
    in_flight = InFlight({runner.version: runner})
    in_flight.add(*make_claim("a", runner.version, [["the river " * 500, "ada"]]))
    run_out(in_flight)
    [outcome] = in_flight.done["a"]
    assert [result["error"] and result["error"]["code"] for result in outcome.results] == ["too_many_windows", None]
    assert outcome.ref.tokens == 128


def test_results_of_a_later_slice_have_their_places_in_the_job(runner: Runner) -> None:
    in_flight = InFlight({runner.version: runner})
    claim, [later] = make_claim("a", runner.version, [["ada", "paris"]])
    later = replace(later, ref=replace(later.ref, first=32))
    in_flight.add(replace(claim, refs=((later.ref, runner.version),)), [later])
    run_out(in_flight)
    [outcome] = in_flight.done["a"]
    assert [result["index"] for result in outcome.results] == [32, 33]


def test_models_take_turns(runner: Runner) -> None:
    null = NullRunner()
    in_flight = InFlight({runner.version: runner, null.version: null})
    in_flight.add(*make_claim("a", runner.version, [["the river " * 500]]))
    in_flight.add(*make_claim("b", null.version, [["ada"]]))
    run_batch(in_flight)
    run_batch(in_flight)
    assert "b" in in_flight.done


def test_next_one_begins_empty_whatever_the_last_one_left(runner: Runner) -> None:
    InFlight({runner.version: runner}).add(*make_claim("a", runner.version, [["the river " * 500]]))
    in_flight = InFlight({runner.version: runner})
    assert in_flight.waiting_tokens(10**9) == 0
    in_flight.add(*make_claim("b", runner.version, [["ada"]]))
    assert run_batch(in_flight) == 1


class DeviceBackend(FixedBackend):
    """Leaves the CPU free, and is done with a batch only once something else was."""

    overlaps = True

    def __init__(self) -> None:
        self.something_else = threading.Event()
        self.batches = 0

    def run(self, model: Model, batch: WindowBatch) -> Logits:
        self.batches += 1
        assert self.something_else.wait(60)
        return super().run(model, batch)


@pytest.fixture
def device(tiny_artifact: Artifact) -> Iterator[tuple[Runner, DeviceBackend]]:
    backend = DeviceBackend()
    runner = Runner.open(backend, tiny_artifact)
    yield runner, backend
    runner.close()


def test_claims_are_opened_and_tokenised_while_a_device_runs_a_batch(device: tuple[Runner, DeviceBackend]) -> None:
    runner, backend = device
    in_flight = InFlight({runner.version: runner})
    in_flight.add(*make_claim("a", runner.version, [["ada wrote"]]))
    assert in_flight.overlaps

    running = in_flight.start()
    in_flight.add(*make_claim("b", runner.version, [["paris"]]))
    assert in_flight.waiting_tokens(10**9) > 0
    backend.something_else.set()
    in_flight.finish(running)
    assert list(in_flight.done) == ["a"]
    run_out(in_flight)
    assert list(in_flight.done) == ["a", "b"]


def test_job_dropped_while_its_batch_runs_is_committed_empty_and_its_neighbour_answered(
    device: tuple[Runner, DeviceBackend],
) -> None:
    runner, backend = device
    in_flight = InFlight({runner.version: runner})
    in_flight.add(*make_claim("a", runner.version, [["ada wrote"], ["ada"]]))

    running = in_flight.start()
    in_flight.drop_jobs({"job_a0"})
    backend.something_else.set()
    in_flight.finish(running)
    run_out(in_flight)
    assert [(outcome.ref.job, len(outcome.results)) for outcome in in_flight.done["a"]] == [
        ("job_a0", 0),
        ("job_a1", 1),
    ]
    assert backend.batches == 1


def test_owner_of_few_small_slices_is_not_met_yet_and_one_of_a_batchs_worth_is(runner: Runner) -> None:
    in_flight = InFlight({runner.version: runner})
    in_flight.add(*make_claim("few", runner.version, [["ada"]] * (BESIDE_TOKENS // 64)))
    assert in_flight.pending.met == []
    in_flight.add(*make_claim("many", runner.version, [["ada"]] * ((SMALL_TOKENS - BESIDE_TOKENS) // 64)))
    assert in_flight.pending.met == ["public:1:small"]


def test_beside_a_larger_job_fewer_small_slices_are_a_batchs_worth(runner: Runner) -> None:
    in_flight = InFlight({runner.version: runner})
    in_flight.add(*make_claim("slice", runner.version, [["ada"] * 32]))
    in_flight.add(*make_claim("few", runner.version, [["ada"]] * (BESIDE_TOKENS // 64 - 1)))
    assert in_flight.pending.met == ["public:1"]
    in_flight.add(*make_claim("one", runner.version, [["ada"]]))
    assert in_flight.pending.met == ["public:1", "public:1:small"]


def spent_on(meter: UsageMeter, in_flight: InFlight) -> dict[str, Sequence[int]]:
    """Return the tokens and core microseconds that are sent with the results so far."""
    request = ExchangeRequest(commits=in_flight.done)
    meter.contributes(request)
    return dict(request.spent)


def test_batch_counts_for_the_jobs_in_it(runner: Runner) -> None:
    meter = UsageMeter()
    in_flight = InFlight({runner.version: runner}, Observers([meter]))
    claim, slices = make_claim("a", runner.version, [["ada"], ["the river was red " * 500]])
    in_flight.add(claim, slices)
    short, document = claim.jobs
    run_batch(in_flight)
    [(job, (tokens, core_us))] = spent_on(meter, in_flight).items()
    assert job == short
    assert tokens > 0
    assert core_us > 0
    run_out(in_flight)
    spent = spent_on(meter, in_flight)
    assert spent[document][0] > 100 * tokens
    assert sum(core_us for _, core_us in spent.values()) == pytest.approx(meter.core_s * 1_000_000, abs=2)


class Shared(FixedBackend):
    """A CPU that others have for two of the three seconds of each pass."""

    passed_s = cpu_s = 0.0

    def run(self, model: Model, batch: WindowBatch) -> Logits:
        self.passed_s, self.cpu_s = self.passed_s + 3, self.cpu_s + 1
        return super().run(model, batch)


@pytest.mark.parametrize(("cpu_s", "on_cpu", "core_s"), [(2, True, 2), (2, False, 3), (9, True, 3)])
def test_job_pays_for_its_own_cpu_time_and_for_all_time_of_a_device(cpu_s: float, on_cpu: bool, core_s: float) -> None:
    """Neighbours take the CPU meanwhile, a device needs none, and more threads than one count once."""
    clocks = {"clock": 100.0, "cpu": 5.0}
    in_flight = InFlight({}, None, lambda: clocks["clock"], lambda: clocks["cpu"])
    began = in_flight._mark()
    clocks["clock"] += 3
    clocks["cpu"] += cpu_s
    assert in_flight._passed(began, on_cpu=on_cpu) == (3, core_s)


def test_usage_is_the_cpu_time_of_work_not_that_of_neighbours(tiny_artifact: Artifact) -> None:
    backend = Shared()
    runner, meter = Runner.open(backend, tiny_artifact), UsageMeter()
    in_flight = InFlight({runner.version: runner}, Observers([meter]), lambda: backend.passed_s, lambda: backend.cpu_s)
    in_flight.add(*make_claim("a", runner.version, [["ada"]]))
    run_out(in_flight)
    [(_, core_us)] = spent_on(meter, in_flight).values()
    assert core_us == pytest.approx(1_000_000, rel=0.01)
    runner.close()


def test_batches_are_recorded_by_version_and_shape(runner: Runner) -> None:
    recorder = Recorder()
    in_flight = InFlight({runner.version: runner}, Observers([CoreMetrics(recorder)]))
    in_flight.add(*make_claim("a", runner.version, [["ada"], ["the river was red " * 50]]))
    run_out(in_flight)
    delta = recorder.take()
    assert delta is not None
    found: defaultdict[str, float] = defaultdict(float)
    for field, amount in delta.amounts.items():
        found[field.partition("|")[0]] += amount
    work = runner.work
    assert found["corelane_batches_total"] == work.batches
    assert found["corelane_batch_windows_total"] == work.windows
    compute_s = delta.amounts[f"corelane_compute_seconds|{runner.version}|#sum"]
    assert found["corelane_batch_seconds_total"] == pytest.approx(compute_s)
    assert (found["corelane_tokens_total"], found["corelane_padding_tokens_total"]) == (work.tokens, work.padding)
    shapes = {field.split("|")[2] for field in delta.amounts if field.startswith("corelane_batches_total")}
    assert shapes <= {"4x32", "2x64"}
    assert delta.amounts["corelane_batch_rows|#sum"] == work.windows
