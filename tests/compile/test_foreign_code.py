"""Code beside a model is never run and never asked about: the command, with a yes on standard input."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from corelane.cli.app import make_cli
from tests.tasks.tiny import save_task

#: A module that leaves a mark where it is imported, with every class that a model may name.
MODULE = """
import pathlib
pathlib.Path({mark!r}).write_text("ran")
from transformers import BertConfig, BertModel, BertTokenizer
class Config(BertConfig): model_type = "mine"
class Network(BertModel): config_class = Config
class Tokenizer(BertTokenizer): pass
"""

CONFIG: dict[str, Any] = {
    "AutoConfig": "mine.Config",
    "AutoModel": "mine.Network",
    "AutoModelForSequenceClassification": "mine.Network",
}
TOKENIZER: dict[str, Any] = {"AutoTokenizer": ["mine.Tokenizer", "mine.Tokenizer"]}


@pytest.mark.parametrize(
    "said", [{"model_type": "mine", "auto_map": CONFIG | TOKENIZER}, {"model_type": "clip", "auto_map": CONFIG}]
)
def test_code_beside_a_model_leaves_no_mark(said: dict[str, Any], tmp_path: Path) -> None:
    folder = save_task("text-classification", tmp_path / "foreign")
    mark = tmp_path / "mark"
    (folder / "mine.py").write_text(MODULE.format(mark=str(mark)))
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | said))
    done = compile_here(folder, tmp_path / "data")
    assert not mark.exists()
    assert "[y/N]" not in done.stdout + done.stderr
    assert (done.exit_code, done.stdout) == (1, "")
    [sentence] = done.stderr.strip().splitlines()
    assert sentence.startswith("foreign ")
    assert "which Corelane never runs" in sentence


def test_code_that_is_not_needed_is_left_alone(tmp_path: Path) -> None:
    folder = save_task("text-classification", tmp_path / "foreign")
    mark = tmp_path / "mark"
    (folder / "mine.py").write_text(MODULE.format(mark=str(mark)))
    for name, names in (("config.json", {**CONFIG, **TOKENIZER}), ("tokenizer_config.json", TOKENIZER)):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": names}))
    done = compile_here(folder, tmp_path / "data")
    assert done.exit_code == 0, done.stderr
    assert not mark.exists()


def compile_here(folder: Path, data: Path) -> Result:
    argv = ["compile", str(folder), "--buckets", "1x32", "--dtype", "fp32"]
    env = {"CORELANE_DATA_DIR": str(data), "COLUMNS": "1000", "HF_HOME": str(data / "hf")}
    return CliRunner().invoke(make_cli(), argv, input="y\n" * 9, env=env)
