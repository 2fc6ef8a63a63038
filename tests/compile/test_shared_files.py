"""Buckets share a file if one trace holds for several lengths, and else have files of their own."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from compile.build import build
from compile.model.loading import SourceModel, load_model, quiet_transformers
from compile.model.probes import make_probe
from compile.model.reference import TaskNetwork, runner_of, wrap
from compile.model.source import find_source
from compile.torch.cpu import trace
from compile.verify import holds
from corelane.engine.buckets import Bucket
from corelane.engine.runner import Runner, open_backend
from corelane.settings import Settings
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query

SHORT, LONG = Bucket(length=32, rows=4), Bucket(length=64, rows=2)


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> SourceModel:
    with quiet_transformers():
        return load_model(find_source(str(tiny_model)))


class Scaled(nn.Module):
    """A network whose trace silently records its length."""

    def __init__(self, network: TaskNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        start, end = self.network(ids, mask, types)
        return start * float(ids.shape[1]), end


class Shaped(Scaled):
    """A network whose trace fails at any other length."""

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        start, end = self.network(ids, mask, types)
        return start + torch.ones(int(ids.shape[1])), end


def trace_holds(model: SourceModel, module: nn.Module) -> bool:
    """Tell whether a trace made at the short length is the module at the long one."""
    reference = runner_of(wrap(model))
    traced = trace(module, make_probe(model, SHORT, reference).batches[0])
    return holds(make_probe(model, LONG, reference), runner_of(traced), runner_of(module))


def test_trace_of_a_bert_holds_at_other_lengths(model: SourceModel) -> None:
    assert trace_holds(model, wrap(model))


@pytest.mark.parametrize("kind", [Scaled, Shaped])
def test_trace_that_recorded_a_length_does_not_hold(model: SourceModel, kind: type[Scaled]) -> None:
    assert not trace_holds(model, kind(wrap(model)).eval())


def test_buckets_get_files_of_their_own_if_no_trace_holds(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query("who", "the river was red . " * 30 + "ada wrote the first program")
    shared = build(str(tiny_model), settings=Settings(data_dir=tmp_path / "a"), buckets="4x32,2x64", dtype="fp32")
    monkeypatch.setattr("compile.build.holds", lambda *_: False)
    apart = build(str(tiny_model), settings=Settings(data_dir=tmp_path / "b"), buckets="4x32,2x64", dtype="fp32")
    assert [bucket.file for bucket in shared.manifest.buckets] == ["bs4-len32.pt"] * 2
    assert [bucket.file for bucket in apart.manifest.buckets] == ["bs4-len32.pt", "bs2-len64.pt"]
    answers = [Runner.open(open_backend("cpu"), artifact).results_of([query]) for artifact in (shared, apart)]
    assert answers[0] == answers[1]
