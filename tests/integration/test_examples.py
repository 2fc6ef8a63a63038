"""The examples run by the commands of their own first lines, on a service that holds the models they name."""

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from compile.tasks.feature_extraction.packaged import NAME, source_of
from corelane.client import Client
from corelane.settings import Settings
from tests.conftest import COMPILE_TIMEOUT_S
from tests.integration.test_tutorial import Reader
from tests.tasks.tiny import compiled, save_task
from tests.tools.artifacts import compile_model, keep
from tests.tools.snippets import ROOT

pytestmark = pytest.mark.timeout(COMPILE_TIMEOUT_S)

#: A command in an example's first lines.
COMMAND = re.compile(r"^(?:// )? {4}(\S.*)$", re.MULTILINE)


def commands(example: str) -> list[str]:
    """Return what the first lines of an example tell its reader to type."""
    return COMMAND.findall((ROOT / "examples" / example).read_text().partition("\nimport ")[0])


def compile_minilm(data: Path) -> None:
    """Compile the model that comes as a package."""
    compile_model(source_of(NAME, Settings(data_dir=data)), data, "8x64,8x256", "fp32", "torchscript")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Start the service of `topics.py`, which has the models of the others too."""
    folder, data = tmp_path_factory.mktemp("reader"), tmp_path_factory.mktemp("models")
    shutil.copytree(ROOT / "examples", folder, dirs_exist_ok=True)
    shutil.copytree(keep("minilm", compile_minilm), data, dirs_exist_ok=True)
    task, tagger = "token-classification", "bert-base-ner"
    compiled(save_task(task, data / "models" / tagger), data, buckets="8x64", name=tagger, task=task)
    with ExitStack() as stack:
        reader = Reader(folder, data, stack)
        fit, _, serve = commands("topics.py")
        reader.type(fit)
        reader.serve(serve, CORELANE_MODEL=NAME, CORELANE_MODELS=tagger)
        yield reader


def test_vectors_of_a_batch_are_found_by_their_meaning(reader: Reader) -> None:
    [search] = commands("vectors.py")
    reader.type(search)
    found = reader.said.splitlines()
    assert len(found) == 3
    assert re.match(r"0\.\d\d manual \d: ", found[0]), found
    reader.type(search.replace("how to look after a household appliance", "a family on holiday in Asia"))
    assert " unicode " in reader.said.splitlines()[0], reader.said


def test_entities_stand_where_their_offsets_say(reader: Reader) -> None:
    reader.type(*commands("tagging.py"))
    emoji, japanese = re.split(r"\n(?=\S)", reader.said.strip())
    for shown in (emoji, japanese):
        text, *entities = shown.splitlines()
        assert entities, shown
        for entity in entities:
            word, start, end = re.fullmatch(r"  \w+ (.+): \[(\d+), (\d+)\] \('utf16', .+", entity).groups()  # type: ignore[union-attr]
            assert text[int(start) : int(end)] == word


def test_handler_gives_the_same_topics_with_and_without_the_service(reader: Reader) -> None:
    _, run, _ = commands("topics.py")
    reader.type(run)
    alone = reader.said
    assert re.search(r'\{"topics":\[\{"topic":"delivery","score":0\.\d+\},\{"topic":"\w+","score":0\.\d+\}\]\}', alone)
    reader.type(run.replace("topics:Topics", "topics"))
    assert reader.said == alone
    with Client(reader.env["CORELANE_URL"]) as client:
        texts = [{"text": text} for text in ("I was charged twice", "The screen broke", "a parcel")] * 20
        topics = [result.output["topics"][0]["topic"] for result in client.predict("topics", texts)]
    assert topics == ["price", "quality", "delivery"] * 20
