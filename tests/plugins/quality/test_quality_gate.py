"""The gate in the suite: the built-in model, as this machine compiled it, against the answers it is known to give."""

from pathlib import Path

import orjson
from typer.testing import CliRunner, Result

from corelane.cli.commands import CommandGroup
from corelane.tasks.question_answering.quality.evaluate import evaluate
from corelane.tasks.question_answering.wire import Question
from tests.tools.fleet import Fleet

HERE = Path(__file__).parent

#: 58 questions on passages of this repository, half of which have no answer there.
FILE = HERE.parents[2] / "examples" / "squad.json"

#: Answers of the built-in model, kept with ``corelane eval examples/squad.json --save``.
KNOWN = HERE / "built_in_answers.jsonl"


def gate(fleet: Fleet, *arguments: str) -> Result:
    app = CommandGroup()
    app.command("eval")(evaluate)
    return CliRunner().invoke(app, [str(FILE), "--url", fleet.url, *arguments])


def test_built_in_model_answers_as_it_is_known_to(fleet: Fleet) -> None:
    """One question is 1.7 points: other CPUs round otherwise, so that two may change."""
    limits = ("--max-drop", "3.5", "--min-agreement", "0.95")
    done = gate(fleet, "--against", str(KNOWN), *limits, "--json")
    assert done.exit_code == 0, done.output
    report = orjson.loads(done.stdout)
    assert report["passes"] is True
    assert report["comparison"]["old"]["exact"] > 90


def test_first_questions_of_the_readme_get_answers_and_those_without_one_null(fleet: Fleet) -> None:
    """Asked without any option. One in other words than the passage's gets its answer where null may not be given."""
    lines = [orjson.loads(line) for line in FILE.with_name("questions.jsonl").read_bytes().splitlines()]
    asked = [Question(**line) for line in [*lines[:5], *(line for line in lines if line["id"].startswith("none"))]]
    reworded = Question(
        question="What is the stream of charged particles from the Sun called?", context=asked[4].context
    )
    asked += [Question(question="How tall is it?", context="The Eiffel Tower is 330 metres tall."), reworded]
    with fleet.client() as client:
        results = list(client.iter_results(client.submit(asked, wait_s=30).id))
        results.append(client.ask(reworded.question, reworded.context or "", no_answer=False))
    given = [result.answer and result.answer.text for result in results]
    of_the_readme = ["£10,000", "John Alcock", "1919", "King George V", "the solar wind"]
    assert given == [*of_the_readme, None, None, "330 metres", None, "solar wind"]
