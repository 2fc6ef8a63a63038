"""A batch beside requests: which request belongs to which part, and what the report says of both."""

import math
from collections.abc import Iterator

import pytest

from corelane.errors import SetupError
from corelane.plugins.lab.batch_work import Standing
from corelane.plugins.lab.beside import BatchTimes, BesidePlan, check_batch, describe
from corelane.plugins.lab.schema import Request
from corelane.plugins.lab.workload import BenchItem, Given, Workload
from corelane.tasks.question_answering.lab.documents import ANSWER, make_document
from tests.plugins.lab.queues import request

PLAN = BesidePlan(rate_per_s=10, warmup_s=1.0)


def asked(start_s: float, end_s: float, latency_s: float) -> list[Request]:
    """Return ten requests a second, each of which takes as long."""
    count = math.floor((end_s - start_s) * 10)
    return [request(number, start_s + number / 10, start_s + number / 10 + latency_s) for number in range(count)]


def test_parts_are_told_by_when_questions_were_due() -> None:
    requests = asked(0, 1, 9.0) + asked(1, 5, 0.02) + asked(5, 9, 0.08) + asked(9, 12, 0.03)
    times = BatchTimes(5.0, accepted_s=0.5, first_s=0.7, ended_s=4.0, progress=[(0.0, 0), (0.7, 10), (4.0, 400)])
    found = describe(requests, times, 400, PLAN)
    assert [spread.count for spread in (found.before, found.during, found.after)] == [40, 40, 30]
    assert found.before.p95 == pytest.approx(0.02)
    assert found.ratio_p95 == pytest.approx(4.0)
    assert (found.makespan_s, found.first_result_s, found.items_per_s) == (4.0, 0.7, 100.0)
    assert found.progress[-1] == (4.0, 400)
    assert found.submitted_at_s == 5.0
    assert found.invalid == []


def test_failures_are_counted_and_are_in_no_latency() -> None:
    requests = asked(1, 5, 0.02) + asked(5, 9, 0.08) + asked(9, 12, 0.03)
    requests += [request(number, 6.0, 6.5, "refused") for number in range(3)]
    found = describe(requests, BatchTimes(5.0, ended_s=4.0), 1, PLAN)
    assert found.failed == 3
    assert found.during.max == pytest.approx(0.08)


def test_late_generator_makes_it_invalid() -> None:
    requests = asked(1, 5, 0.2) + asked(5, 9, 0.2) + asked(9, 12, 0.2)
    for each in requests:
        each.sent_s = each.intended_s + 0.1
    [reason] = describe(requests, BatchTimes(5.0, ended_s=4.0), 1, PLAN).invalid
    assert "the generator was late" in reason


def test_part_without_questions_is_named() -> None:
    with pytest.raises(SetupError, match="no request was answered during the batch"):
        describe(asked(1, 5, 0.02) + asked(9, 12, 0.02), BatchTimes(5.0, ended_s=4.0), 1, PLAN)


class DoneWork:
    """A batch that is done, with these results."""

    def __init__(self, places: list[int], found: list[Given], wrong: int = 0) -> None:
        self.items, self.places, self.wrong, self._found = len(places), places, wrong, found

    def submit(self) -> None: ...

    def cancel(self) -> None: ...

    def poll(self) -> Standing:
        return Standing(self.items, True)

    def results(self) -> Iterator[Given]:
        yield from self._found


def test_lost_doubled_and_wrong_answers_of_a_batch_are_found() -> None:
    workload = Workload(
        [BenchItem({"question": f"Who is {n}?", "context": f"It is Nr {n}."}, (f"Nr {n}",)) for n in range(4)], "made"
    )
    places = [workload.pick(number)[0] for number in range(8)]
    assert sorted(places) == [0, 0, 1, 1, 2, 2, 3, 3]
    given = [Given(number, (f"Nr {place}", 6, 10)) for number, place in enumerate(places)]
    right = check_batch(workload, DoneWork(places, given))
    assert (right.checked, right.lost, right.twice, right.exact) == (8, 0, 0, 100.0)
    wrong = check_batch(workload, DoneWork(places, [*given[1:], given[-1], given[-1]]))
    assert (wrong.lost, wrong.twice) == (1, 2)
    documents = check_batch(workload, DoneWork([], [], wrong=2))
    assert documents.differ_from_idle == 2


def test_documents_differ_and_end_with_what_is_asked() -> None:
    one, other = (make_document(["a b c d.", "e f g."], 50, number) for number in (1, 2))
    assert one != other
    assert one == make_document(["a b c d.", "e f g."], 50, 1)
    assert one.endswith(f"{ANSWER}.")
    assert len(one.split()) >= 50
