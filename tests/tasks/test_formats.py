"""Models of each task answer alike in each format that a CPU reads."""

from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tasks.tiny import FAMILIES, TASKS, answer, compiled, queries_of, save_task
from tests.tools.cpu_kinds import TOLD

#: A label and its score for each token: two labels of one may be all but tied, and then their scores are, too.
OPTIONS = {"token-classification": {"aggregation": "none", "ignore_labels": ()}}


def scores_of(result: dict[str, Any]) -> Any:
    """Return the numbers of a result: its vector's, or scores in the order of what they are about."""
    [found] = (each for each in result.values() if isinstance(each, list))
    if "embedding" in result:
        return np.array(found)
    place = next(name for name in ("start", "index", "label") if name in found[0])
    return np.array([each["score"] for each in sorted(found, key=itemgetter(place))])


#: Each task with another family; token classification, whose parity is seen in fp32 alone elsewhere, with all.
CASES = dict.fromkeys([*zip(TASKS, FAMILIES, strict=True), *(("token-classification", kind) for kind in FAMILIES)])


@pytest.mark.parametrize(("task", "kind"), CASES)
def test_answers_are_alike_in_each_format(
    task: str, kind: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    # Heads of random weights tell texts apart if those are large.
    folder = save_task(task, tmp_path / "tiny", kind, larger=12.0 if "Sequence" in TASKS[task][0] else None)
    queries = queries_of(task, 8, **OPTIONS.get(task, {}))
    exact = [scores_of(each) for each in answer(compiled(folder, tmp_path, buckets="2x32", task=task), queries)]
    for format, dtype in (("torchscript", "bf16"), ("openvino", "fp32"), ("openvino", "int8")):
        artifact = compiled(folder, tmp_path / format / dtype, dtype, "2x32", task=task, format=format)
        assert (artifact.manifest.format, artifact.manifest.dtype) == (format, dtype)
        found = [scores_of(each) for each in answer(artifact, queries)]
        assert [each.shape for each in found] == [each.shape for each in exact]
        worst = np.abs(np.concatenate(found) - np.concatenate(exact)).max()
        record_property(TOLD, f"{format} {dtype}: off by {worst:.4f} at most, {task} by {kind}")
        assert np.concatenate(found) == pytest.approx(np.concatenate(exact), abs=0.05)
        assert np.corrcoef(np.concatenate(found), np.concatenate(exact))[0, 1] > 0.9
