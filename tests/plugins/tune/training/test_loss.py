import math

import torch

from corelane.plugins.tune.training.loss import distance, log_shares, marginal_loss, readable
from corelane.plugins.tune.training.plan import TrainingOptions
from corelane.plugins.tune.training.weights import rate_at

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


def test_the_learning_rate_rises_then_falls_to_nothing() -> None:
    options = TrainingOptions(learning_rate=1.0, warm_up=0.1)
    rates = [rate_at(step, 100, options) for step in range(100)]
    assert rates.index(max(rates)) in (9, 10)
    assert max(rates) == 1.0
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < 0.02
    assert rates[0] == 0.1
