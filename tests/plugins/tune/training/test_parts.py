"""What a run is made of: its checkpoints, its loss, and how right a network is."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from corelane.engine.backends.protocol import WindowBatch
from corelane.engine.buckets import Bucket
from corelane.tasks.question_answering.engine.spans import Candidate
from corelane.tasks.question_answering.squad import SquadQuestion
from corelane.tasks.question_answering.tune.held_out import Seen
from corelane.tasks.question_answering.tune.training.checkpoints import last_checkpoint, write_checkpoint
from corelane.tasks.question_answering.tune.training.dataset import Filled, Row
from corelane.tasks.question_answering.tune.training.evaluator import score_spans
from corelane.tasks.question_answering.tune.training.loss import distance, log_shares, marginal_loss, readable
from corelane.tasks.question_answering.tune.training.plan import SoftTargets, TrainingOptions
from corelane.tasks.question_answering.tune.training.teachers import follow
from corelane.tasks.question_answering.tune.training.weights import rate_at


def state(value: float) -> dict[str, torch.Tensor]:
    return {"weights.0": torch.full((7,), value), "adam.0.step": torch.tensor(value)}


def test_the_last_two_are_kept_and_the_last_is_read(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path) is None
    for step in range(1, 5):
        write_checkpoint(tmp_path, step, state(float(step)), {"step": step, "best": None})
    assert len(list(tmp_path.glob("*"))) == 2
    found = last_checkpoint(tmp_path)
    assert found is not None
    assert found[1] == {"step": 4, "best": None}
    assert torch.equal(found[0]["weights.0"], state(4.0)["weights.0"])


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    for step in (1, 2):
        write_checkpoint(tmp_path, step, state(float(step)), {"step": step})
    last = max(tmp_path.glob("*"))
    last.write_bytes(last.read_bytes()[:100])
    (tmp_path / ".step-00000003.safetensors.new").write_bytes(b"half")
    found = last_checkpoint(tmp_path)
    assert found is not None
    assert found[1] == {"step": 1}


CONTEXT_AT, LAST = torch.tensor([3, 2]), torch.tensor([6, 5])


def test_answers_lie_in_the_passage_or_at_cls() -> None:
    allowed = readable(8, CONTEXT_AT, LAST)
    assert allowed.tolist() == [[n in places for n in range(8)] for places in ((0, 3, 4, 5), (0, 2, 3, 4))]


def test_shares_add_up_to_one_over_what_is_allowed() -> None:
    allowed = readable(8, CONTEXT_AT, LAST)
    shares = log_shares(torch.randn(2, 8, dtype=torch.bfloat16), allowed).exp()
    torch.testing.assert_close(shares.sum(1), torch.ones(2))
    assert shares[~allowed].max() == 0


def test_the_chances_of_all_reference_spans_add_up() -> None:
    allowed = readable(8, CONTEXT_AT, LAST)
    starts, ends = (log_shares(torch.randn(2, 8), allowed) for _ in range(2))
    loss = marginal_loss(starts, ends, [[(3, 4), (4, 4)], []])
    first = sum(math.exp(starts[0, a] + ends[0, b]) for a, b in ((3, 4), (4, 4)))
    null = math.exp(starts[1, 0] + ends[1, 0])
    assert math.isclose(float(loss), -(math.log(first) + math.log(null)) / 2, rel_tol=1e-5)


def test_a_student_like_its_teacher_is_at_no_distance() -> None:
    allowed = readable(8, CONTEXT_AT, LAST)
    teacher = torch.randn(2, 8)
    assert abs(float(distance(teacher, teacher, allowed, 2.0))) < 1e-6
    # A shift changes no share, nor do tokens that no answer may have.
    moved = torch.where(allowed, teacher + 3.0, torch.randn(2, 8) * 100)
    assert abs(float(distance(moved, teacher, allowed, 2.0))) < 1e-5
    assert float(distance(-teacher, teacher, allowed, 2.0)) > 0.01


def test_a_student_that_says_what_its_teachers_do_loses_nothing_by_them() -> None:
    rows, starts, ends = [Row(0, 0, 0, 3, 8), Row(1, 1, 0, 3, 6)], torch.randn(2, 8), torch.randn(2, 8)
    allowed = readable(8, CONTEXT_AT, LAST)
    logits = {row: torch.stack((starts, ends))[:, number, : row.length] for number, row in enumerate(rows)}
    objective = follow(logits, SoftTargets(("one",), (1.0,), 2.0, 1.0))
    empty = WindowBatch(Bucket(8, 2), *[np.zeros((2, 8), np.int64)] * 3)
    filled = Filled(empty, [[], []], np.array([3, 2]), np.array([6, 5]))
    assert abs(float(objective(rows, filled, starts, ends, allowed))) < 1e-5
    assert float(objective(rows[::-1], filled, starts, ends, allowed)) > 0.01


def test_the_learning_rate_rises_then_falls_to_nothing() -> None:
    options = TrainingOptions(learning_rate=1.0, warm_up=0.1)
    rates = [rate_at(step, 100, options) for step in range(100)]
    assert rates.index(max(rates)) in (9, 10)
    assert max(rates) == 1.0
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < 0.02
    assert rates[0] == 0.1


#: What the best span says, and gold answers of which it is all, two thirds by F1, or nothing.
SPAN, WHOLE, PARTLY, OTHER = "ada byron", ("ada byron",), ("ada",), ("red",)


def seen(margin: float, gold: tuple[str, ...] = ()) -> Seen:
    return SquadQuestion("q", "who", SPAN, gold), Candidate(0, len(SPAN), margin, 0.0, margin)


def test_the_threshold_gives_the_answers_that_are_worth_it() -> None:
    spans = [seen(5, WHOLE), seen(4, PARTLY), seen(3), seen(2, OTHER), seen(1)]
    scores = score_spans(spans)
    assert scores.metrics.f1 == pytest.approx(100 * (1 + 2 / 3 + 2) / 5)
    assert scores.metrics.exact == pytest.approx(100 * 3 / 5)
    assert scores.as_data()["answerable_f1"] == pytest.approx(100 * (1 + 2 / 3) / 3)
    assert scores.metrics.no_answer_accuracy == 100
    assert scores.threshold == -3.5


def test_a_question_without_a_span_gets_no_answer() -> None:
    without = (SquadQuestion("q", "who", "", WHOLE), None)
    assert score_spans([without]).metrics.f1 == 0
    assert score_spans([without, seen(1, WHOLE)]).metrics.f1 == 50
