"""Every architecture in a running service, beside the built-in model, one core: ``make families``."""

from functools import partial
from pathlib import Path

import pytest

from compile.build import build
from compile.model.loading import quiet_transformers
from compile.tasks.texts import TOWER
from corelane.cli.local import running_service
from corelane.client import Client
from corelane.engine.runner import Runner, open_backend
from corelane.settings import Settings
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from corelane.tasks.question_answering.options import AnswerOptions
from tests.families.networks import save_tiny
from tests.families.rows import ROWS
from tests.families.test_architectures import CONTEXTS, QUESTION
from tests.tools.waiting import eventually

OPTIONS = AnswerOptions(doc_stride=16, max_answer_tokens=12, no_answer=False)


def is_served(client: Client, version: str) -> bool:
    return version in {model["id"] for model in client.models()}


@pytest.mark.timeout(3600)
def test_every_architecture_is_served_beside_the_built_in_model(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("--families"):
        pytest.skip("tried by `make families`")
    settings = Settings(data_dir=tmp_path / "data")
    with running_service(tmp_path / "data", cores=1) as url, Client(url) as client:
        for row in ROWS:
            if row.refused:
                continue
            with quiet_transformers():
                source = save_tiny(row, tmp_path / row.kind)
                artifact = build(str(source), settings=settings, buckets="2x48,2x96", dtype="fp32")
            runner = Runner.open(open_backend("cpu"), artifact)
            expected = runner.results_of([Query(QUESTION, context, OPTIONS) for context in CONTEXTS])
            version = artifact.manifest.version_id
            client.load_model(version)
            eventually(partial(is_served, client, version))
            items = [{"question": QUESTION, "context": context} for context in CONTEXTS]
            job = client.submit(items, model=version, options=OPTIONS.model_dump(exclude_defaults=True), wait_s=60)
            found = [result.answer for result in client.iter_results(job.id)]
            for answer, one in zip(found, expected, strict=True):
                assert answer is not None
                assert (answer.start, answer.end) == (one["answer"]["start"], one["answer"]["end"]), row.kind
            other = client.ask("When was the tower built?", TOWER)
            assert other.answer is not None
            assert other.answer.text == "1889"
            client.unload_model(version)
