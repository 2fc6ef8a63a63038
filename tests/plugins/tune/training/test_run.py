"""Runs of a tiny network on questions made by rule, in processes of their own where they are killed."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from corelane.errors import ModelRefused, SetupError
from corelane.tasks.question_answering.tune.training.checkpoints import PATTERN, last_checkpoint
from corelane.tasks.question_answering.tune.training.loop import BEST, CHECKPOINTS, LOG
from corelane.tasks.question_answering.tune.training.plan import TrainingPlan, shares_of
from corelane.tasks.question_answering.tune.training.run import alone, tune
from tests.plugins.tune.training.made import make_document, write_document
from tests.tools.waiting import eventually


@pytest.fixture(scope="module")
def plan(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingPlan:
    path = write_document(tmp_path_factory.mktemp("tune") / "q.json", make_document(articles=12))
    return TrainingPlan(
        model=str(tiny_model),
        files=(path,),
        shares=(1.0,),
        epochs=4,
        learning_rate=3e-3,
        dropout=0.1,
        average=0.9,
        batch_tokens=300,
        max_length=64,
        negatives=0.2,
        dev_share=0.2,
        judged=2,
        patience=99,
        precision="fp32",
        threads=1,
    )


@pytest.fixture(scope="module")
def whole_run(plan: TrainingPlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the plan without a break."""
    folder = tmp_path_factory.mktemp("tune") / "whole"
    assert tune(plan, folder, folder, lambda _: None) is not None
    return folder


def entries(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]


def test_a_network_learns(whole_run: Path) -> None:
    losses = [float(str(each["loss"])) for each in entries(whole_run) if "loss" in each]
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])
    judged = [each["judged"] for each in entries(whole_run) if "judged" in each]
    assert len(judged) == 8
    assert (whole_run / "model" / "model.safetensors").is_file()


SCRIPT = """
import sys
from pathlib import Path
import torch
from corelane.tasks.question_answering.tune.training.run import tune
from tests.plugins.tune.training.test_run import read_plan
torch.set_num_threads(1)
folder = Path(sys.argv[1])
tune(read_plan(Path(sys.argv[2])), folder, folder, print, checkpoint_s=0.0)
"""


def read_plan(path: Path) -> TrainingPlan:
    data = json.loads(path.read_text())
    return TrainingPlan(**data | {"files": tuple(map(Path, data["files"])), "shares": tuple(data["shares"])})


def write_plan(plan: TrainingPlan, path: Path) -> Path:
    data = {name: getattr(plan, name) for name in TrainingPlan.__dataclass_fields__}
    path.write_text(json.dumps(data | {"files": [str(each) for each in plan.files]}))
    return path


def test_a_killed_run_goes_on_to_the_same_weights_bit_for_bit(
    plan: TrainingPlan, whole_run: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    given = write_plan(plan, tmp_path / "plan.json")
    run = subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder), str(given)], stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: len(list((folder / CHECKPOINTS).glob(PATTERN))) > 1 or run.poll() is not None)
        assert run.poll() is None
    finally:
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
    kept = last_checkpoint(folder / CHECKPOINTS)
    assert kept is not None
    said: list[str] = []
    finished = tune(plan, folder, folder, said.append)
    assert finished is not None
    assert any(line.startswith(f"going on after step {kept[1]['step']:,} of") for line in said)
    for name in (BEST, "model/model.safetensors"):
        here, there = load_file(folder / name), load_file(whole_run / name)
        assert here.keys() == there.keys()
        assert all(torch.equal(here[each], there[each]) for each in here)
    last, same = (last_checkpoint(each / CHECKPOINTS) for each in (folder, whole_run))
    assert last is not None
    assert same is not None
    assert all(torch.equal(last[0][each], same[0][each]) for each in same[0])
    figures = [[each for each in entry.items() if each[0] != "elapsed_s"] for entry in entries(folder)]
    assert figures == [[each for each in entry.items() if each[0] != "elapsed_s"] for entry in entries(whole_run)]


def test_a_finished_run_is_not_trained_again(plan: TrainingPlan, whole_run: Path) -> None:
    before = (whole_run / LOG).read_bytes()
    assert tune(plan, whole_run, whole_run, lambda _: None) is not None
    assert (whole_run / LOG).read_bytes() == before


def test_a_folder_of_another_run_is_refused_with_what_differs(
    plan: TrainingPlan, whole_run: Path, tmp_path: Path
) -> None:
    with pytest.raises(SetupError, match=r"another run, with epochs 4 and not 5"):
        tune(replace(plan, epochs=5), whole_run, whole_run, lambda _: None)
    changed = write_document(tmp_path / "q.json", make_document(articles=12, seed=4))
    with pytest.raises(SetupError, match="files"):
        tune(replace(plan, files=(changed,)), whole_run, whole_run, lambda _: None)


def test_two_processes_never_train_in_one_folder(plan: TrainingPlan, tmp_path: Path) -> None:
    with alone(tmp_path), pytest.raises(SetupError, match="another process trains"):
        tune(plan, tmp_path, tmp_path, lambda _: None)


def test_a_gradient_that_is_not_finite_ends_the_run_with_advice(plan: TrainingPlan, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="lower --learning-rate"):
        tune(replace(plan, learning_rate=1e30, clip=1e30, warm_up=0.0), tmp_path, tmp_path, lambda _: None)


def test_a_run_ends_early_where_nothing_improves(plan: TrainingPlan, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    idle = replace(plan, learning_rate=1e-12, patience=1)
    assert tune(idle, folder, folder, lambda _: None) is not None
    assert len([each for each in entries(folder) if "judged" in each]) == 2


def test_words_can_be_kept_as_they_are(plan: TrainingPlan, tmp_path: Path, tiny_model: Path) -> None:
    folder = tmp_path / "run"
    assert tune(replace(plan, frozen=True, epochs=1, precision="bf16"), folder, folder, lambda _: None) is not None
    before, after = (load_file(each / "model.safetensors") for each in (tiny_model, folder / "model"))
    name = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(before[name], after[name])
    assert not torch.equal(before["qa_outputs.weight"], after["qa_outputs.weight"])


def test_a_base_model_gets_a_new_head_and_other_models_are_refused(
    plan: TrainingPlan, tmp_path: Path, tiny_model: Path
) -> None:
    from transformers import BertConfig, BertModel

    base = tmp_path / "base"
    base.mkdir()
    for path in tiny_model.iterdir():
        (base / path.name).write_bytes(path.read_bytes())
    BertModel(BertConfig.from_pretrained(tiny_model)).save_pretrained(base)
    folder = tmp_path / "run"
    assert tune(replace(plan, model=str(base), epochs=1), folder, folder, lambda _: None) is not None
    (base / "model.safetensors").write_bytes((folder / BEST).read_bytes()[:50])
    with pytest.raises(ModelRefused):
        tune(replace(plan, model=str(base)), tmp_path / "other", folder, lambda _: None)


def test_files_may_have_shares(tmp_path: Path) -> None:
    odd = tmp_path / "a=b.json"
    odd.touch()
    assert shares_of(["q.json", "r.json=0.25", str(odd)]) == ((Path("q.json"), Path("r.json"), odd), (1.0, 0.25, 1.0))
    for wrong in ("q.json=much", "q.json=0", "q.json=-1"):
        with pytest.raises(SetupError, match="share"):
            shares_of([wrong])
