"""Stored contexts in the store: kept once, named by jobs, there as long as a job needs them, and gone then."""

import hashlib
from typing import Any

import pytest

from corelane.domain.dispatch import Row, decode_slice, encode_slice
from corelane.domain.request_facts import NO_REQUEST
from corelane.domain.texts import Stored, digest_of, is_text_id, text_id
from corelane.errors import TextsFull, UnknownText
from corelane.plugins.files.store.texts import TextKeeper
from corelane.store.fleet import Fleet
from corelane.store.item_files import decode_line, encode_line
from corelane.store.jobs.store import JobStore
from corelane.store.jobs.submission import Submission
from corelane.store.link.link import AsyncLink
from corelane.submitting.retries import retry
from corelane.submitting.submitter import Submitter
from corelane.tasks.question_answering.wire import Question
from tests.corelane.store_bench import VERSION, Bench, LoneCore, answered, claimed, submit_as_admitted
from tests.tools.question_jobs import QuestionHead

TEXT = "Ada was the first to write a program. Zoë came later."
NAME = text_id(TEXT)
OWNER = "ann"

HOUR_S = 3600


@pytest.fixture
def core(bench: Bench) -> LoneCore:
    return bench.core("a/0")


def keep(bench: Bench, text: str = TEXT, owner: str = OWNER, ttl_s: int = HOUR_S) -> str:
    bench.with_link(lambda link: TextKeeper(link, bench.settings).keep(owner, text, None, ttl_s))
    return text_id(text)


def ask(bench: Bench, *names: str, owner: str = OWNER, **given: Any) -> str:
    return bench.submit(0, owner=owner, items=[Question(question="who", context_id=name) for name in names], **given)


def remove(bench: Bench, name: str = NAME, owner: str = OWNER) -> bool:
    return bench.with_link(lambda link: TextKeeper(link, bench.settings).remove(owner, name))


def listed(bench: Bench, owner: str = OWNER) -> list[str]:
    page = bench.with_link(lambda link: TextKeeper(link, bench.settings).page(owner, None, 10))
    return [each.id for each in page.data]


def kept_keys(bench: Bench) -> set[str]:
    keys = {key.decode() if isinstance(key, bytes) else key for key in bench.raw.scan_iter("cl:context*")}
    return keys - {"cl:contexts_due"}


def age_contexts(bench: Bench, seconds: float) -> None:
    """Act as if contexts had been stored and used so much earlier, and have the keeper look."""
    for key in bench.raw.scan_iter("cl:context:*"):
        bench.raw.hincrby(key, "expires_ms", -int(1000 * seconds))
    for member in bench.raw.zrange("cl:contexts_due", 0, -1):
        bench.raw.zincrby("cl:contexts_due", -int(1000 * seconds), member)
    bench.upkeep.prune()


def texts_of(core: LoneCore, claim: Any) -> list[str]:
    return [context for stretch in core.fetch(claim) for _, _, context in stretch.items]


def test_id_is_the_digest_of_the_text_in_utf8() -> None:
    assert NAME == "ctx_" + hashlib.sha256(TEXT.encode()).hexdigest() == f"ctx_{digest_of(TEXT)}"
    assert is_text_id(NAME)
    assert not any(is_text_id(each) for each in (NAME[:-1], NAME.upper(), f"{NAME}0", "tower", ""))


def test_stored_context_stands_in_rows_and_lines_as_an_object_that_earlier_releases_refuse() -> None:
    rows: list[Row] = [("a", "who", Stored("12ab")), (None, "when", Stored("12ab")), ("c", "why", "text")]
    payload = encode_slice(rows)
    assert payload == b'[["a","who",{"digest":"12ab"}],[null,"when",null],["c","why","text"]]'
    assert decode_slice(payload) == rows
    assert decode_line(encode_line(rows[0], 7)).row == rows[0]
    for wrong in (b'[["a","who",{"digest":1}]]', b'[["a","who",{}]]', b'[["a","who",{"digest":"a","b":1}]]'):
        with pytest.raises(ValueError, match="row"):
            decode_slice(wrong)


def test_jobs_name_a_text_that_is_in_redis_once_and_read_by_a_core_once(bench: Bench, core: LoneCore) -> None:
    text = TEXT * 20
    name = keep(bench, text)
    jobs = [ask(bench, name, name) for _ in range(3)]
    assert not list(bench.raw.scan_iter("cl:contexts:*"))
    assert all(len(payload) < 300 for job in jobs for payload in bench.raw.hvals(f"cl:in:{{{job}}}"))
    claim = claimed(core)
    assert texts_of(core, claim) == [text] * 6
    bench.raw.hdel(f"cl:context:{{{OWNER}:{digest_of(text)}}}", "text")  # it is not asked for again
    assert texts_of(core, claim) == [text] * 6
    core.commit(claim.lease, answered(claim))
    assert {bench.get(job).succeeded for job in jobs} == {2}
    assert not list(bench.raw.scan_iter("cl:context_jobs:*"))
    found = bench.with_link(lambda link: TextKeeper(link, bench.settings).get(OWNER, name))
    assert found is not None
    assert found.jobs == 3


def test_text_that_a_core_keeps_for_one_owner_is_read_again_for_another(bench: Bench, core: LoneCore) -> None:
    ask(bench, keep(bench))
    assert texts_of(core, claimed(core)) == [TEXT]
    ask(bench, keep(bench, owner="bob"), owner="bob")
    bench.raw.hset(f"cl:context:{{bob:{digest_of(TEXT)}}}", "text", "as it is in Redis")
    assert texts_of(core, claimed(core)) == ["as it is in Redis"]


def test_core_keeps_no_more_texts_than_its_bound(bench: Bench) -> None:
    bench.settings = bench.settings.model_copy(update={"context_text_bytes": 2 * len(TEXT.encode())})
    core, names = bench.core("a/0"), [keep(bench, TEXT + end) for end in ("", "!")]
    ask(bench, *names)
    claim = claimed(core)
    assert texts_of(core, claim) == [TEXT, TEXT + "!"]
    assert texts_of(core, claim) == [TEXT, TEXT + "!"]


@pytest.mark.usefixtures("core")
def test_unknown_contexts_are_refused_together_and_nothing_is_kept(bench: Bench) -> None:
    keep(bench)
    wrong = [text_id(each) for each in "ab"]
    before = set(bench.raw.scan_iter("cl:*"))
    with pytest.raises(UnknownText) as refused:
        ask(bench, wrong[0], NAME, wrong[1])
    assert all(each in str(refused.value) for each in wrong)
    assert NAME not in str(refused.value)
    assert set(bench.raw.scan_iter("cl:*")) == before


@pytest.mark.usefixtures("core")
def test_other_owners_context_is_an_unknown_one(bench: Bench) -> None:
    keep(bench)
    with pytest.raises(UnknownText):
        ask(bench, NAME, owner="bob")
    assert not remove(bench, owner="bob")
    assert listed(bench, "bob") == []


def test_context_removed_by_another_process_is_found_missing_as_the_job_is_taken_in(bench: Bench) -> None:
    bench.core("a/0")
    keep(bench)

    async def run(link: AsyncLink) -> None:
        store = JobStore(link, bench.settings, bench.bell)
        submitter = Submitter(store, Fleet(link), bench.settings)
        submission = Submission(QuestionHead(model=VERSION), OWNER, [Question(question="who", context_id=NAME)])
        await submitter.texts.resolve(submission)
        await TextKeeper(link, bench.settings).remove(OWNER, NAME)
        with pytest.raises(UnknownText):  # though this process remembers it
            await submitter.submit(submission)
        assert await store.get(submission.id) is None

    bench.with_link(run)
    assert not bench.raw.exists("cl:waiting")


def test_removed_context_is_there_for_its_jobs_and_goes_with_the_last(bench: Bench, core: LoneCore) -> None:
    keep(bench)
    first, second = ask(bench, NAME), ask(bench, NAME)
    assert remove(bench)
    assert not remove(bench)
    assert listed(bench) == []
    with pytest.raises(UnknownText):
        ask(bench, NAME)
    bench.cancel(second)
    bench.with_store(lambda store: store.delete(second))
    age_contexts(bench, 2 * HOUR_S)
    claim = claimed(core)
    assert texts_of(core, claim) == [TEXT]
    core.commit(claim.lease, answered(claim))
    assert bench.get(first).succeeded == 1
    assert kept_keys(bench) == set()


def test_context_of_unanswered_items_is_there_for_their_retry(bench: Bench, core: LoneCore) -> None:
    keep(bench)
    job = ask(bench, NAME)
    claim = claimed(core)
    core.commit(claim.lease, answered(claim, "failed"))
    remove(bench)
    age_contexts(bench, 2 * HOUR_S)
    record = bench.get(job)

    async def again(link: AsyncLink) -> str:
        store = JobStore(link, bench.settings, bench.bell)
        assert (found := await store.item(record, 0)) is not None
        assert found.model_dump()["context"] == TEXT
        submitter = Submitter(store, Fleet(link), bench.settings)
        return (await retry(submitter, store, bench.settings, record, NO_REQUEST)).record.id

    bench.with_link(again)
    bench.with_store(lambda store: store.delete(job))
    claim = claimed(core)
    assert texts_of(core, claim) == [TEXT]
    core.commit(claim.lease, answered(claim))
    assert kept_keys(bench) == set()


def test_context_goes_when_the_jobs_that_held_it_are_forgotten(bench: Bench, core: LoneCore) -> None:
    keep(bench)
    job = ask(bench, NAME)
    claim = claimed(core)
    core.commit(claim.lease, answered(claim, "failed"))
    age_contexts(bench, 2 * HOUR_S)
    assert listed(bench) == []
    assert kept_keys(bench)
    bench.raw.delete(f"cl:job:{{{job}}}")  # its time is over
    age_contexts(bench, 2 * HOUR_S)
    assert kept_keys(bench) == set()
    assert not bench.raw.exists("cl:contexts_due")


def test_use_renews_the_time_and_disuse_ends_it(bench: Bench, core: LoneCore) -> None:
    keep(bench)
    bench.raw.hset(f"cl:context:{{{OWNER}:{digest_of(TEXT)}}}", "used_ms", 0)
    age_contexts(bench, HOUR_S - 60)
    ask(bench, NAME)
    claim = claimed(core)
    core.commit(claim.lease, answered(claim))
    age_contexts(bench, HOUR_S - 60)
    assert listed(bench) == [NAME]
    age_contexts(bench, 120)
    assert kept_keys(bench) == set()


@pytest.mark.usefixtures("core")
def test_context_whose_time_is_over_is_unknown_before_the_keeper_has_looked(bench: Bench) -> None:
    keep(bench)
    bench.raw.hset(f"cl:context:{{{OWNER}:{digest_of(TEXT)}}}", "expires_ms", 1)
    with pytest.raises(UnknownText):
        ask(bench, NAME)
    keep(bench)
    ask(bench, NAME)
    assert listed(bench) == [NAME]


@pytest.mark.usefixtures("core")
def test_removed_context_that_a_job_holds_can_be_stored_again_and_is_charged_once(bench: Bench) -> None:
    keep(bench)
    ask(bench, NAME)
    remove(bench)
    keep(bench)
    assert listed(bench) == [NAME]
    assert int(bench.raw.hget("cl:context_bytes", OWNER)) == len(TEXT.encode())
    ask(bench, NAME)


def test_owner_has_no_more_contexts_and_bytes_than_allowed(bench: Bench) -> None:
    size = len(TEXT.encode())
    bench.settings = bench.settings.model_copy(update={"max_contexts": 2, "max_contexts_bytes": 2 * size})
    keep(bench)
    with pytest.raises(TextsFull, match="CORELANE_MAX_CONTEXTS_BYTES"):
        keep(bench, TEXT + "!")
    keep(bench, "short")
    keep(bench)
    with pytest.raises(TextsFull, match=r"CORELANE_MAX_CONTEXTS\)"):
        keep(bench, "a")
    keep(bench, TEXT + "!", owner="bob")
    remove(bench)
    keep(bench, "a")
    assert listed(bench) == [text_id("a"), text_id("short")]


@pytest.mark.usefixtures("core")
def test_estimate_is_that_of_the_same_text_sent_with_the_job(bench: Bench) -> None:
    text = TEXT * 40
    keep(bench, text)
    stored = ask(bench, text_id(text))
    sent = bench.submit(0, owner=OWNER, items=[Question(question="who", context_id="a")], contexts={"a": text})
    refs = bench.raw.lrange(f"cl:lane:{VERSION}:1:{OWNER}", 0, -1)
    assert [ref.split(":")[0] for ref in refs] == [stored, sent]
    assert len({ref.split(":")[6] for ref in refs}) == 1


@pytest.mark.usefixtures("core")
def test_job_that_was_made_once_is_found_again_after_its_context_is_gone(bench: Bench) -> None:
    from corelane.store.jobs.idempotency import by_name

    keep(bench)
    submission = Submission(
        QuestionHead(model=VERSION),
        OWNER,
        [Question(question="who", context_id=NAME)],
        once=by_name(OWNER, "mine", "body"),
    )

    async def submit(link: AsyncLink) -> str:
        return (await submit_as_admitted(link, bench.settings, bench.bell, submission)).id

    made = bench.with_link(submit)
    remove(bench)
    assert bench.with_link(submit) == made
