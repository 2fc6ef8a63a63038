import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from compile.model.loading import SourceModel, load_model, quiet_transformers
from compile.model.probes import Probe, make_probe
from compile.model.reference import TaskNetwork, runner_of, wrap
from compile.model.source import find_source
from compile.tasks.question_answering.answers import find_answers
from compile.verify import Disagreement, compare, judge, judge_results, share_equal
from corelane.engine.backends.protocol import Logits, Pass, WindowBatch
from corelane.engine.buckets import Bucket
from corelane.errors import CompileFailed

BUCKET = Bucket(length=64, rows=4)


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Iterator[SourceModel]:
    with quiet_transformers():
        yield load_model(find_source(str(tiny_model)))


@pytest.fixture(scope="module")
def reference(model: SourceModel) -> TaskNetwork:
    return wrap(model)


@pytest.fixture(scope="module")
def probe(model: SourceModel, reference: TaskNetwork) -> Probe:
    return make_probe(model, BUCKET, runner_of(reference))


def changed(reference: TaskNetwork, change: Callable[[WindowBatch], WindowBatch]) -> Pass:
    run = runner_of(reference)
    return lambda batch: run(change(batch))


def test_eager_model_agrees_with_itself(probe: Probe, reference: TaskNetwork) -> None:
    compared = compare(probe, runner_of(reference), "fp32")
    judge(compared, "fp32", "eager")
    assert compared.flexible_rows
    assert share_equal([compared]) == 1


def test_model_that_ignores_the_mask_is_caught(probe: Probe, reference: TaskNetwork) -> None:
    run = changed(reference, lambda batch: replace(batch, attention_mask=np.ones_like(batch.attention_mask)))
    compared = compare(probe, run, "fp32")
    assert compared.isolation_error > 1e-3
    with pytest.raises(Disagreement, match="gives other logits"):
        judge(compared, "fp32", "bucket")


def test_rows_that_influence_each_other_are_caught(probe: Probe, reference: TaskNetwork) -> None:
    run = runner_of(reference)

    def mix(batch: WindowBatch) -> Logits:
        logits = run(batch)
        blend = np.float32(1e-3) * logits[0].mean(axis=0) * batch.input_ids.mean(dtype=np.float32)
        return (logits[0] + blend, logits[1])

    compared = replace(compare(probe, mix, "bf16"), logit_error=0)
    with pytest.raises(Disagreement, match="padding or other rows"):
        judge(compared, "fp32", "bucket")


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_logit_that_is_no_number_is_caught(probe: Probe, reference: TaskNetwork, poison: float) -> None:
    run = runner_of(reference)

    def spoil(batch: WindowBatch) -> Logits:
        logits = run(batch)
        end = logits[1].copy()
        end[0, 3] = poison
        return (logits[0], end)

    with pytest.raises(Disagreement):
        judge(compare(probe, spoil, "fp32"), "fp32", "bucket")


def test_network_that_takes_no_other_length_is_told(probe: Probe, reference: TaskNetwork) -> None:
    run = runner_of(reference)
    whole = probe.batches[0].bucket.length

    def fixed(batch: WindowBatch) -> Logits:
        if batch.input_ids.shape[1] != whole:
            raise RuntimeError("another length was recorded as a constant")
        return run(batch)

    assert compare(probe, run, "fp32").flexible_lengths
    assert not compare(probe, fixed, "fp32").flexible_lengths


def test_wrong_weights_are_caught(probe: Probe, reference: TaskNetwork) -> None:
    wrong = copy.deepcopy(reference)
    with torch.no_grad():
        wrong.network.qa_outputs.weight.mul_(1.5)
    with pytest.raises(Disagreement, match="gives other logits"):
        judge(compare(probe, runner_of(wrong), "fp32"), "fp32", "bucket")


def test_model_that_takes_full_batches_only_is_sound_and_not_flexible(probe: Probe, reference: TaskNetwork) -> None:
    run = runner_of(reference)

    def full_only(batch: WindowBatch) -> Logits:
        if batch.rows != BUCKET.rows:
            raise RuntimeError("shape mismatch")
        return run(batch)

    compared = compare(probe, full_only, "fp32")
    judge(compared, "fp32", "bucket")
    assert not compared.flexible_rows


def test_changed_answers_are_caught() -> None:
    judge_results(0.95, 0.9, "bf16")
    with pytest.raises(Disagreement, match=r"bf16 changes results: 80% .* use --dtype fp32"):
        judge_results(0.8, 0.9, "bf16")


def test_answers_lie_in_the_context_and_move_with_the_logits(probe: Probe) -> None:
    answers = find_answers(probe.rows, probe.expected)
    readings = {item: reading for rows in probe.rows for item, reading, _ in rows}
    assert set(answers) == set(readings)
    for item, (start, end) in answers.items():
        assert 0 <= start <= end < len(readings[item].context)
        assert end - start < 30
    upside_down = [(-logits[0], -logits[1]) for logits in probe.expected]
    assert find_answers(probe.rows, upside_down) != answers


def test_bucket_too_short_for_any_question_is_refused(model: SourceModel, reference: TaskNetwork) -> None:
    with pytest.raises(CompileFailed, match="too short for even a short item"):
        make_probe(model, Bucket(length=8, rows=1), runner_of(reference))
