"""What is in progress on a core: claims opened, batches run, outcomes collected, whatever happens in between."""

import threading
from collections.abc import Iterator

import pytest

from corelane.artifacts.manifest import Artifact
from corelane.domain.dispatch import SMALL_TOKENS, Ref
from corelane.domain.jobs import Options
from corelane.engine.backends.protocol import Batch, Logits, Model
from corelane.engine.null import NullRunner
from corelane.engine.runner import Runner, RunnerLimits
from corelane.store.dispatch import Claim, Stretch
from tests.fakes import FixedBackend
from workers.core.in_flight import Docket


@pytest.fixture
def runner(tiny_artifact: Artifact) -> Iterator[Runner]:
    runner = Runner.open(FixedBackend(), tiny_artifact)
    yield runner
    runner.close()


def make_claim(lease: str, version: str, contexts: list[list[str]]) -> tuple[Claim, list[Stretch]]:
    """One ref per list of contexts, each of a job of its own."""
    refs = [Ref(f"job_{lease}{n}", "public", 1, 0, 0, len(texts), 64 * len(texts)) for n, texts in enumerate(contexts)]
    stretches = [
        Stretch(ref, version, [(f"i{i}", "who", text) for i, text in enumerate(texts)], Options(no_answer=False))
        for ref, texts in zip(refs, contexts, strict=True)
    ]
    return Claim(lease, tuple((ref, version) for ref in refs)), stretches


def run_out(docket: Docket) -> None:
    while not docket.is_empty:
        docket.step()


def test_every_item_of_every_claim_is_answered_in_its_place(runner: Runner) -> None:
    docket = Docket({runner.version: runner})
    docket.open(*make_claim("a", runner.version, [["ada wrote", "the river " * 200], ["paris"]]))
    docket.open(*make_claim("b", runner.version, [["berlin " * 300]]))
    assert docket.leases == ["a", "b"]
    run_out(docket)
    assert {lease: len(outcomes) for lease, outcomes in docket.done.items()} == {"a": 2, "b": 1}
    for outcomes in docket.done.values():
        for outcome in outcomes:
            assert [result["index"] for result in outcome.results] == list(range(outcome.ref.count))
            assert [result["id"] for result in outcome.results] == [f"i{n}" for n in range(outcome.ref.count)]
    assert runner.waiting_tokens(10**9) == 0


def test_question_claimed_later_is_done_before_a_document(runner: Runner) -> None:
    docket = Docket({runner.version: runner})
    docket.open(*make_claim("document", runner.version, [["the river was red " * 500]]))
    docket.step()
    docket.open(*make_claim("question", runner.version, [["ada"]]))
    for _ in range(2):
        docket.step()
    assert list(docket.done) == ["question"]
    run_out(docket)
    assert set(docket.done) == {"question", "document"}


def test_document_counts_for_its_share_only(runner: Runner) -> None:
    docket = Docket({runner.version: runner})
    docket.open(*make_claim("document", runner.version, [["the river was red " * 500]]))
    assert docket.waiting_tokens(512) == 512
    assert docket.waiting_tokens(10**9) > 2000


def test_job_nobody_waits_for_stops_and_frees_its_claim(runner: Runner) -> None:
    docket = Docket({runner.version: runner})
    docket.open(*make_claim("a", runner.version, [["the river " * 500], ["ada"]]))
    docket.drop_jobs({"job_a0"})
    assert [outcome.results for outcome in docket.done["a"]] == [[]]
    run_out(docket)
    assert [len(outcome.results) for outcome in docket.done["a"]] == [0, 1]


def test_lost_lease_takes_its_open_work_along(runner: Runner) -> None:
    docket = Docket({runner.version: runner})
    docket.open(*make_claim("a", runner.version, [["ada"], ["the river " * 500]]))
    docket.step()
    committed = docket.done
    assert docket.settle(committed, {"a": 1}) == 1
    assert docket.is_empty
    assert (docket.done, docket.leases) == ({}, [])
    assert runner.waiting_tokens(10**9) == 0


def test_what_is_unfinished_is_told_and_no_longer_in_progress(runner: Runner) -> None:
    docket = Docket({runner.version: runner})
    claim, stretches = make_claim("a", runner.version, [["ada"], ["the river " * 500]])
    docket.open(claim, stretches)
    docket.step()
    [(ref, version)] = docket.unfinished()["a"]
    assert (ref.key, version) == (claim.refs[1][0].key, runner.version)
    assert ref.tokens > 1000
    assert docket.is_empty


def test_best_answer_so_far_is_told_of_items_in_progress_by_their_place_and_lease(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corelane.engine.batching.previews.LOOK_S", 0.0)
    context = "the river was red " * 500
    docket = Docket({runner.version: runner})
    claim, stretches = make_claim("a", runner.version, [["ada"], ["paris", context]])
    docket.open(claim, stretches)
    docket.step()
    while not (looks := docket.look()):
        docket.step()
    [look] = looks
    assert (look.lease, look.ref.key) == ("a", claim.refs[1][0].key)
    answer = look.data.pop("answer")
    assert context[answer["start"] : answer["end"]] == answer["text"]
    assert (look.data["index"], look.data["id"]) == (1, "i1")
    assert 0 < look.data["windows_done"] < look.data["windows_total"]
    run_out(docket)
    assert docket.look() == []


def test_charge_follows_what_was_read_and_is_told_once_where_it_is_far_off(runner: Runner) -> None:
    docket = Docket({runner.version: runner})
    docket.open(*make_claim("a", runner.version, [["ada", "paris"], ["x?! " * 2000, "ada"]]))
    [(lease, ref)] = docket.corrections()
    windows = docket.waiting_tokens(10**9)
    assert (lease, ref.job) == ("a", "job_a1")
    assert ref.tokens > 6000
    assert docket.corrections() == []
    run_out(docket)
    charged = {outcome.ref.job: outcome.ref.tokens for outcome in docket.done["a"]}
    assert charged == {"job_a0": 128, "job_a1": ref.tokens}
    assert sum(charged.values()) >= windows


def test_item_that_is_refused_is_charged_what_was_estimated(tiny_artifact: Artifact) -> None:
    runner = Runner.open(FixedBackend(), tiny_artifact, RunnerLimits(max_windows=10))
    docket = Docket({runner.version: runner})
    docket.open(*make_claim("a", runner.version, [["the river " * 500, "ada"]]))
    run_out(docket)
    [outcome] = docket.done["a"]
    assert [result["error"] and result["error"]["code"] for result in outcome.results] == ["too_many_windows", None]
    assert outcome.ref.tokens == 128


def test_ref_without_payload_fails_so_that_its_job_ends(runner: Runner) -> None:
    docket = Docket({runner.version: runner})
    claim, stretches = make_claim("a", runner.version, [["ada"], ["paris"]])
    docket.open(claim, stretches[1:])
    [outcome] = docket.done["a"]
    assert outcome.ref == claim.refs[0][0]
    assert [(result["index"], result["error"]["code"]) for result in outcome.results] == [(0, "internal")]


def test_models_take_turns(runner: Runner) -> None:
    null = NullRunner()
    docket = Docket({runner.version: runner, null.version: null})
    docket.open(*make_claim("a", runner.version, [["the river " * 500]]))
    docket.open(*make_claim("b", null.version, [["ada"]]))
    docket.step()
    docket.step()
    assert "b" in docket.done


def test_new_docket_begins_empty_whatever_the_last_one_left(runner: Runner) -> None:
    Docket({runner.version: runner}).open(*make_claim("a", runner.version, [["the river " * 500]]))
    docket = Docket({runner.version: runner})
    assert docket.waiting_tokens(10**9) == 0
    docket.open(*make_claim("b", runner.version, [["ada"]]))
    assert docket.step()[0] == 1


class DeviceBackend(FixedBackend):
    """Leaves the CPU free, and is done with a batch only once something else was."""

    overlaps = True

    def __init__(self) -> None:
        self.something_else = threading.Event()
        self.batches = 0

    def run(self, model: Model, batch: Batch) -> Logits:
        self.batches += 1
        assert self.something_else.wait(30)
        return super().run(model, batch)


@pytest.fixture
def device(tiny_artifact: Artifact) -> Iterator[tuple[Runner, DeviceBackend]]:
    backend = DeviceBackend()
    runner = Runner.open(backend, tiny_artifact)
    yield runner, backend
    runner.close()


def test_claims_are_opened_and_tokenised_while_a_device_runs_a_batch(device: tuple[Runner, DeviceBackend]) -> None:
    runner, backend = device
    docket = Docket({runner.version: runner})
    docket.open(*make_claim("a", runner.version, [["ada wrote"]]))
    assert docket.overlaps

    def claim_more() -> None:
        docket.open(*make_claim("b", runner.version, [["paris"]]))
        assert docket.waiting_tokens(10**9) > 0
        backend.something_else.set()

    docket.step(claim_more)
    assert list(docket.done) == ["a"]
    run_out(docket)
    assert list(docket.done) == ["a", "b"]


def test_job_dropped_while_its_batch_runs_is_committed_empty_and_its_neighbour_answered(
    device: tuple[Runner, DeviceBackend],
) -> None:
    runner, backend = device
    docket = Docket({runner.version: runner})
    docket.open(*make_claim("a", runner.version, [["ada wrote"], ["ada"]]))

    def cancel() -> None:
        docket.drop_jobs({"job_a0"})
        backend.something_else.set()

    docket.step(cancel)
    run_out(docket)
    assert [(outcome.ref.job, len(outcome.results)) for outcome in docket.done["a"]] == [("job_a0", 0), ("job_a1", 1)]
    assert backend.batches == 1


def test_step_without_a_batch_has_the_rest_done_all_the_same(device: tuple[Runner, DeviceBackend]) -> None:
    runner, backend = device
    docket = Docket({runner.version: runner})
    docket.open(*make_claim("a", runner.version, [["the river was red " * 2500]]))
    docket.step(backend.something_else.set)
    assert backend.something_else.is_set()
    assert backend.batches == 0


def test_null_engine_that_takes_time_answers_what_was_there_when_it_began() -> None:
    docket = Docket({NullRunner.version: NullRunner(batch_s=0.01)})
    docket.open(*make_claim("a", NullRunner.version, [["ada"], ["paris"]]))

    def change() -> None:
        docket.drop_jobs({"job_a0"})
        docket.open(*make_claim("b", NullRunner.version, [["berlin"]]))

    docket.step(change)
    assert [len(outcome.results) for outcome in docket.done["a"]] == [0, 1]
    assert "b" not in docket.done
    run_out(docket)
    assert "b" in docket.done


def test_owner_of_few_small_stretches_is_not_met_yet_and_one_of_a_batchs_worth_is(runner: Runner) -> None:
    docket = Docket({runner.version: runner})
    docket.open(*make_claim("few", runner.version, [["ada"]] * 3))
    assert docket.met == []
    docket.open(*make_claim("slice", runner.version, [["ada"] * 32]))
    assert docket.met == ["public:1"]
    docket.open(*make_claim("many", runner.version, [["ada"]] * (SMALL_TOKENS // 64)))
    assert docket.met == ["public:1", "public:1:small"]


def test_lone_question_claimed_beside_its_owners_batch_is_done_by_the_next_step(runner: Runner) -> None:
    docket = Docket({runner.version: runner})
    docket.open(*make_claim("batch", runner.version, [["ada wrote it"] * 60]))
    docket.step()
    docket.open(*make_claim("lone", runner.version, [["ada wrote it"]]))
    assert "lone" not in docket.done
    docket.step()
    assert "lone" in docket.done
    assert "batch" not in docket.done
