import os
import signal
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from corelane.cli.commands import CommandGroup
from corelane.cli.compile import compile_model
from corelane.cli.errors import unwound_by_sigterm


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Invoke":
    monkeypatch.setenv("CORELANE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return Invoke()


class Invoke:
    def __call__(self, *argv: str) -> Result:
        cli = CommandGroup()
        cli.command()(compile_model)
        return CliRunner().invoke(cli, argv)


def test_command_prints_a_table_and_the_place(invoke: Invoke, tiny_model: Path, tmp_path: Path) -> None:
    result = invoke(str(tiny_model), "--buckets", "4x32", "--dtype", "fp32", "--name", "mine")
    assert result.exit_code == 0, result.output
    for heading in ("bucket", "seconds", "MB", "ms per batch", "seq/s", "max |Δlogit|", "4x32", "mine@"):
        assert heading in result.stdout
    assert str(tmp_path / "artifacts" / "mine") in result.stdout
    assert "corelane models load mine" in result.stdout


def test_command_prints_the_artifact_as_json_whether_made_or_there(
    invoke: Invoke, tiny_model: Path, tmp_path: Path
) -> None:
    result = invoke(str(tiny_model), "--buckets", "2x16", "--dtype", "fp32", "--name", "mine", "--json")
    [made] = [orjson.loads(line) for line in result.stdout.splitlines()]
    assert (made["id"], made["dtype"], made["target"], made["verified"]) == (
        f"mine@{made['version']}",
        "fp32",
        "cpu",
        True,
    )
    assert [(bucket["rows"], bucket["length"]) for bucket in made["buckets"]] == [(2, 16)]
    assert Path(made["path"]) == tmp_path / "artifacts" / "mine" / made["version"] / "cpu"
    there = invoke(str(tiny_model), "--name", "mine", "--if-missing", "--json")
    assert orjson.loads(there.stdout) == made
    assert invoke(str(tiny_model), "--name", "mine", "--if-missing").stdout == ""


def test_command_ends_with_one_sentence_and_status_1(invoke: Invoke, tiny_model: Path) -> None:
    result = invoke(str(tiny_model), "--buckets", "wide")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "'wide' is not a bucket" in result.stderr
    assert "Traceback" not in result.output


def test_artifacts_are_kept_in_the_data_folder_given(invoke: Invoke, tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    made = invoke(str(tiny_model), "--buckets", "2x16", "--dtype", "fp32", "--name", "mine", "--data", str(folder))
    assert str(folder / "artifacts" / "mine") in made.stdout, made.output
    assert list(tmp_path.iterdir()) == [folder]
    there = invoke(str(tiny_model), "--name", "mine", "--if-missing", "--json", "--data", str(folder))
    assert orjson.loads(there.stdout)["path"].startswith(str(folder))


@pytest.mark.parametrize("place", ["a file", "/proc/corelane"])
def test_a_data_folder_that_cannot_be_written_is_one_sentence(
    invoke: Invoke, tiny_model: Path, tmp_path: Path, place: str
) -> None:
    (tmp_path / "a file").touch()
    result = invoke(str(tiny_model), "--data", str(tmp_path / place))
    assert (result.exit_code, isinstance(result.exception, SystemExit)) == (1, True)
    (sentence,) = result.stderr.splitlines()
    assert "cannot be written" in sentence
    assert "--data" in sentence


def test_unknown_dtype_is_a_usage_error(invoke: Invoke, tiny_model: Path) -> None:
    assert invoke(str(tiny_model), "--dtype", "fp8").exit_code == 2


def test_sigterm_ends_a_compile_as_ctrl_c_does() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit), unwound_by_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
