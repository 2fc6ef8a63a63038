"""Usage in the store: a job's and a day's grow in one step; work that was thrown away is no usage of anybody's."""

from datetime import date

from corelane.domain.overview import DAY_S
from corelane.domain.usage import Usage, Used
from corelane.plugins.accounting.ledger import DayUsage, day_number, day_text, read_rows, report
from corelane.store.dispatch import Claim, Dispatch, ExchangeRequest, Room, SliceResults
from tests.corelane.store_bench import VERSION, Bench, answered, claimed

#: What a core spent on a job: tokens and core microseconds.
SPENT = [500, 3_000_000]


def commit(core: Dispatch, claim: Claim, outcomes: list[SliceResults] | None = None) -> dict[str, int]:
    spent = dict.fromkeys(claim.jobs, SPENT)
    outcomes = answered(claim) if outcomes is None else outcomes
    return core.exchange(ExchangeRequest(commits={claim.lease: outcomes}, spent=spent)).refused


def rows_of(bench: Bench, owner: str | None = None) -> list[DayUsage]:
    now_day = int(bench.raw.time()[0]) // DAY_S
    return bench.with_link(lambda link: read_rows(link, now_day - 1, now_day, owner))


def usage_of(bench: Bench, job: str) -> Usage:
    usage = bench.get(job).describe().usage
    assert usage is not None
    return usage


def test_job_and_day_have_the_same_usage(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(2, owner="ada")
    assert bench.get(job).describe().usage is None
    commit(core, claimed(core))
    assert usage_of(bench, job) == Usage(items=2, tokens=500, core_s=3)
    [row] = rows_of(bench)
    assert (row.owner, row.model, row.used) == ("ada", VERSION, Used(2, 500, 3_000_000))
    assert rows_of(bench, "bob") == []


def test_usage_grows_with_each_commit(bench: Bench) -> None:
    job = bench.submit(200)
    for name in ("a/0", "a/1", "a/0"):
        core = bench.core(name)
        core._room = Room(1)
        commit(core, claimed(core))
    assert bench.get(job).used == Used(bench.get(job).succeeded, 1500, 9_000_000)


def test_job_that_was_canceled_meanwhile_has_the_usage_of_what_was_done(bench: Bench) -> None:
    core = bench.core("a/0")
    job, deleted = bench.submit(1, owner="ada"), bench.submit(1, owner="ada")
    claim = claimed(core)
    bench.cancel(job)
    bench.with_store(lambda store: store.delete(deleted))
    commit(core, claim, [SliceResults(ref, []) for ref, _ in claim.refs])
    assert usage_of(bench, job) == Usage(items=0, tokens=500, core_s=3)
    assert {row.model: row.used.core_s for row in rows_of(bench, "ada")} == {VERSION: 3, None: 3}


def test_work_under_a_lost_lease_is_no_usage(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(1)
    claim = claimed(core)
    bench.age(60)
    bench.upkeep.return_lapsed()
    assert commit(core, claim) == {claim.lease: 1}
    assert bench.get(job).describe().usage is None
    assert rows_of(bench) == []


def test_failed_items_are_counted(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(1)
    claim = claimed(core)
    failure = [{"index": 0, "id": "i0", "status": "failed", "error": {"code": "x", "detail": "y"}}]
    commit(core, claim, [SliceResults(claim.refs[0][0], failure)])
    assert usage_of(bench, job).items == 1


def test_days_that_are_over_are_forgotten(bench: Bench) -> None:
    for day in (100, 101):
        bench.raw.zadd("cl:usage_days", {day: day})
        bench.raw.hset(f"cl:usage:{day}", "ada|m", "1 1 1")
    core = bench.core("a/0")
    bench.submit(1)
    commit(core, claimed(core))
    bench.upkeep.prune()
    assert bench.raw.keys("cl:usage:10*") == []
    assert bench.raw.zcard("cl:usage_days") == 1


def row(day: int, owner: str, model: str, seconds: int) -> DayUsage:
    return DayUsage(day, owner, model, Used(1, 10, seconds * 1_000_000))


def test_report_groups_by_any_of_day_month_key_and_model() -> None:
    first = day_number(date(2026, 10, 31))
    rows = [row(first, "ada", "m@1", 1), row(first + 1, "ada", "m@2", 2), row(first + 1, "bob", "m@2", 4)]
    found = report(rows, first, first + 1, ["month", "key"])
    assert [(each.month, each.key, each.model, each.core_s) for each in found.data] == [
        ("2026-10", "ada", None, 1),
        ("2026-11", "ada", None, 2),
        ("2026-11", "bob", None, 4),
    ]
    assert (found.from_, found.to) == ("2026-10-31", day_text(first + 1))
    assert [each.core_s for each in report(rows, first, first, ["model"]).data] == [1, 6]
    assert (found.total.items, found.total.tokens, found.total.core_s) == (3, 30, 7)
