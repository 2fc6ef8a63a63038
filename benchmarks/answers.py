"""How right the built-in model is: through the service, on SQuAD's public test and on sets of other questions.

    python benchmarks/answers.py [FOLDER] [--limit N] [--quick]

FOLDER holds the data, by default `../shared/data`. First the table of `corelane eval` over all sets. The first set has
answerable questions alone, which all get an answer. The pairs ask each of them of its own passage, and of the next one
in the file if that has none of the answers. The sets of other questions were not trained on. Then EM and F1 of the
public test's answerable questions in v2.0, if all get an answer. Writes `results/answers.json`.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from benchmarks.runs import QUICK, is_quick, keep, service  # noqa: E402
from corelane.client import Client  # noqa: E402
from corelane.domain.squad import Question, QuestionSet, summarise  # noqa: E402
from corelane.plugins.tune.cli.evaluate import read_set, score  # noqa: E402
from corelane.plugins.tune.cli.evaluate_files import figures, show_files  # noqa: E402

DATA = HERE.parent.parent / "shared" / "data"
EXAMPLES = HERE.parent / "examples" / "squad.json"

#: SQuAD's public test, and sets of other questions: to search engines, and about times.
TEST = ("squad-test-public-v1.1.json.gz", "squad-test-public-v2.0.json.gz")
OTHERS = ("nq-open-oracle.json.gz", "clapnq-unanswerable.json.gz", "tsqa-human.json.gz")

PAIRS = "pairs of the public test"


def main() -> None:
    """Ask every set, print the tables and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DATA)
    parser.add_argument("--limit", type=int, help="questions of each set")
    parser.add_argument(QUICK, action="store_true", help="a few questions of this repository, and no figures kept")
    options = parser.parse_args()
    limit = 6 if is_quick() else options.limit
    names = [EXAMPLES] if is_quick() else [options.folder / name for name in (*TEST, *OTHERS)]
    if absent := [path for path in names if not path.exists()]:
        parser.error(f"{absent[0]} is absent: name the folder that holds the data")
    sets = {path.name: read_set(path, limit) for path in names}
    asked = read_set(names[0]).questions
    sets[PAIRS] = QuestionSet(pairs(asked)[:limit], may_be_unanswerable=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        service(Path(folder), log_level="warning") as running,
        Client(running.url, timeout_s=600) as client,
    ):
        scored = {name: score(client, asked, "default", {})[1] for name, asked in sets.items()}
        always = score(client, sets[names[-1 if is_quick() else 1].name], "default", {"no_answer": False})[1]
    show_files([(name, {}, outcomes) for name, outcomes in scored.items()], as_json=False)
    answerable = summarise([each for each in always if each.question.gold])
    print(f"the answerable ones of v2.0, always answering: EM {answerable.exact:.1f}, F1 {answerable.f1:.1f}")
    found: dict[str, Any] = {name: figures(outcomes) for name, outcomes in scored.items()}
    found["always answering v2.0"] = {"exact": answerable.exact, "f1": answerable.f1}
    keep("answers", found)


def pairs(questions: Sequence[Question]) -> list[Question]:
    """Return each answerable question with its passage, and with the next passage if that has none of its answers."""
    asked = [each for each in questions if each.gold]
    contexts = list(dict.fromkeys(each.context for each in asked))
    after = dict(zip(contexts, [*contexts[1:], contexts[0]], strict=True))
    found = []
    for each in asked:
        other = after[each.context]
        found.append(each)
        if not any(answer.casefold() in other.casefold() for answer in each.gold):
            found.append(Question(f"{each.id}-next", each.question, other, ()))
    return found


if __name__ == "__main__":
    main()
