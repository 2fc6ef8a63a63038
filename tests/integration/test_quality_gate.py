"""The gate in the suite: the built-in model, as this machine compiled it, against the answers it is known to give."""

from pathlib import Path

import orjson
from typer.testing import CliRunner, Result

from corelane.cli.commands import CommandGroup
from corelane.cli.evaluate import evaluate
from tests.integration.conftest import Fleet

HERE = Path(__file__).parent

#: 58 questions on passages of this repository, half of which have no answer there.
FILE = HERE.parent.parent / "examples" / "squad.json"

#: Answers of the built-in model, kept with ``corelane eval examples/squad.json --save``.
KNOWN = HERE / "built_in_answers.jsonl"


def gate(fleet: Fleet, *arguments: str) -> Result:
    app = CommandGroup()
    app.command("eval")(evaluate)
    return CliRunner().invoke(app, [str(FILE), "--url", fleet.url, *arguments])


def test_built_in_model_answers_as_it_is_known_to(fleet: Fleet) -> None:
    """One question is 1.7 points: other CPUs round otherwise, so that two may change."""
    limits = ("--max-em-drop", "3.5", "--max-f1-drop", "3.5", "--min-agreement", "0.95", "--max-score-drift", "0.1")
    done = gate(fleet, "--against", str(KNOWN), *limits, "--json")
    assert done.exit_code == 0, done.output
    report = orjson.loads(done.stdout)
    assert report["passes"] is True
    assert report["comparison"]["old"]["exact"] > 90


def test_a_version_worse_than_the_known_one_does_not_pass(fleet: Fleet, tmp_path: Path) -> None:
    """Asked for very sure answers alone, the built-in model says null too often."""
    head, *lines = map(orjson.loads, KNOWN.read_text().splitlines())
    strict = {"no_answer_threshold": -20.0}
    better = tmp_path / "better.jsonl"
    better.write_bytes(b"\n".join(map(orjson.dumps, [head | {"options": head["options"] | strict}, *lines])))
    done = gate(fleet, "--against", str(better), "--threshold", "-20")
    assert done.exit_code == 1
    assert "does not pass" in done.stderr.replace("\n", " ")
    assert "EM lost" in done.stderr.replace("\n", " ")
