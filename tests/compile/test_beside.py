import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from compile.model.beside import Child, run_beside
from compile.model.loading import load_model, quiet_transformers
from compile.model.logit_cache import LogitCache
from compile.model.probes import make_probe
from compile.model.reference import runner_of, wrap
from compile.model.source import find_source
from compile.model.timing import one_thread
from corelane.engine.backends.protocol import Logits, WindowBatch
from corelane.engine.buckets import Bucket
from corelane.errors import RunFailed

SHORT, LONG = Bucket(length=64, rows=4), Bucket(length=128, rows=2)


def calls(*numbers: int) -> list[Callable[[], int]]:
    return [lambda number=number: number * number for number in numbers]  # type: ignore[misc]


def fail() -> int:
    raise RunFailed("no room")


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("places", [1, 2, 4])
def test_results_come_in_order(count: int, places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compile.model.beside.places", lambda: places)
    assert run_beside(calls(*range(count))) == [number * number for number in range(count)]


@pytest.mark.parametrize("place", range(4))
def test_error_of_a_call_is_raised_wherever_it_ran(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compile.model.beside.places", lambda: 2)
    some = calls(1, 2, 3, 4)
    some[place] = fail
    with pytest.raises(RunFailed, match="no room"):
        run_beside(some)


def test_call_whose_child_dies_is_made_here() -> None:
    here = os.getpid()

    def die_elsewhere() -> int:
        if os.getpid() != here:
            os._exit(1)
        return 7

    assert Child(die_elsewhere).result() == 7


@pytest.mark.parametrize("begins", [False, True])
def test_rows_are_computed_once_and_as_they_would_be(
    tiny_model: Path, begins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compile.model.beside.places", lambda: 2)
    monkeypatch.setattr("compile.model.logit_cache.places", lambda: 2)
    with quiet_transformers(), one_thread():
        model = load_model(find_source(str(tiny_model), tiny_model))
        plain = runner_of(wrap(model))
        seen: list[int] = []

        def count(batch: WindowBatch) -> Logits:
            seen.append(batch.rows)
            return plain(batch)

        expected = [make_probe(model, bucket, plain) for bucket in (SHORT, LONG)]
        remembered = LogitCache(model.task, count)
        if begins:
            remembered.begin(batch for probe in expected for batch in probe.batches)
        found = [make_probe(model, bucket, remembered) for bucket in (SHORT, LONG)]
        rows = sum(len(part) for probe in expected for part in probe.rows)
        assert not seen if begins else sum(seen) < rows
        _same(expected[0].expected, found[0].expected, expected[0].batches)
        _same(expected[1].expected, found[1].expected, expected[1].batches)
        remembered.end()


def _same(some: Sequence[Logits], others: Sequence[Logits], batches: Sequence[WindowBatch]) -> None:
    for one, other, batch in zip(some, others, batches, strict=True):
        visible = batch.attention_mask == 1
        np.testing.assert_allclose(one[0][visible], other[0][visible], atol=1e-4)
        np.testing.assert_allclose(one[1][visible], other[1][visible], atol=1e-4)
