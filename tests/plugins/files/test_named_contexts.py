"""Stored contexts named by lines of a batch and by inputs read from a URL: by what a keeper reads."""

import json
from contextlib import closing
from pathlib import Path

import pytest
import redis

from corelane.domain.texts import text_id
from corelane.plugins.files.store.references import ReferenceStore
from corelane.plugins.files.store.texts import TextKeeper
from corelane.settings import Settings
from tests.corelane.store_bench import Bench, answered, claimed
from tests.plugins.files.batch_bench import BatchBench, line
from tests.plugins.files.test_references import Fleet, fleet  # noqa: F401
from tests.tools.s3 import put

TEXT = "Ada was the first to write a program."
NAME, UNKNOWN = text_id(TEXT), text_id("nobody stored this")


@pytest.fixture
def bench(settings: Settings, raw: redis.Redis, bell: str) -> BatchBench:
    return BatchBench(settings.model_copy(update={"lease_s": 3600.0}), raw, bell)


def keep(bench: Bench, owner: str) -> None:
    bench.with_link(lambda link: TextKeeper(link, bench.settings).keep(owner, TEXT, None, 3600))


def remove(bench: Bench, owner: str) -> None:
    bench.with_link(lambda link: TextKeeper(link, bench.settings).remove(owner, NAME))


def test_line_of_a_batch_names_a_stored_context_or_fails_alone(bench: BatchBench) -> None:
    core = bench.core("a/0")
    keep(bench, "ann")
    good = line("a", context=None, context_id=NAME)
    batch = bench.begin(good + line("b", context=None, context_id=UNKNOWN) + line("c") + line("d", context_id=NAME))
    bench.steps()
    [group] = bench.record(batch).groups
    assert (group.items, group.stored) == (2, [NAME])
    remove(bench, "ann")
    bench.feed()
    claim = claimed(core)
    assert [context for stretch in core.fetch(claim) for _, _, context in stretch.items] == [TEXT, "ada"]
    core.commit(claim.lease, answered(claim))
    bench.steps()
    errors = {each["custom_id"]: each["error"]["code"] for each in bench.lines(bench.batch(batch).error_file_id)}
    assert errors == {"b": "unknown_context", "d": "invalid_input"}
    assert not list(bench.raw.scan_iter("cl:context:*"))


def test_input_at_a_url_names_a_stored_context_which_its_job_keeps(
    fleet: Fleet,  # noqa: F811
    s3: str,
    bucket: Path,
) -> None:
    bench = fleet.bench
    keep(bench, "public")
    items = [{"question": "who", "context_id": each} for each in (NAME, UNKNOWN, NAME)]
    put(bucket / "in.ndjson", "".join(f"{json.dumps(item)}\n" for item in items).encode())
    job = fleet.submit(input_url=f"{s3}/in.ndjson")
    fleet.read(job)
    remove(bench, "public")
    with closing(ReferenceStore(fleet.settings)) as store:  # as a keeper that goes on where another died
        assert (found := store.pin_text(bench.get(job), NAME)) is not None
        assert found.head == TEXT
        assert store.pin_text(bench.get(job), UNKNOWN) is None
    fleet.feeder.feed(job)
    while (claim := fleet.core.claim(["tiny@1"], linger=False)) is not None:
        assert {context for stretch in fleet.core.fetch(claim) for _, _, context in stretch.items} == {TEXT}
        fleet.core.commit(claim.lease, answered(claim))
    fleet.answer(job)
    found_codes = [
        (result["status"], (result["error"] or {}).get("code")) for result in bench.results(job) if "error" in result
    ]
    assert ("failed", "unknown_context") in found_codes
    assert fleet.job(job)["counts"]["succeeded"] == 2
