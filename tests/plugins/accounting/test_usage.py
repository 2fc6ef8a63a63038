"""Usage in the store: a job's and a day's grow in one step; work that was thrown away is charged to nobody."""

from datetime import date

import pytest

from corelane.domain.durations import DAY_S
from corelane.domain.prices import NOTHING, Price
from corelane.domain.usage import Usage, Used
from corelane.plugins.accounting.ledger import DayUsage, Ledger, day_number, day_text, read_ledger, report
from corelane.store.dispatch import Claim, Dispatch, ExchangeRequest, Room, SliceResults
from corelane.store.fleet import Announcer
from tests.corelane.store_bench import VERSION, Bench, LoneCore, answered, claimed

PRICE = Price(0.36, "USD", "inf2.xlarge", "2026-09-24")
DEARER = Price(0.72, "USD", "inf2.8xlarge", "2026-09-24")

#: What a core spent on a job: seconds held and by stage, core seconds, windows, tokens.
SPENT = [9_000_000, 0, 1_000_000, 2_000_000, 0, 0, 3_000_000, 4, 500]


def core_of(bench: Bench, name: str, price: Price | None) -> LoneCore:
    bench.core(name)
    core = LoneCore(bench.settings, name)
    core._price = NOTHING if price is None else price.encode()
    return core


def commit(
    core: Dispatch, claim: Claim, outcomes: list[SliceResults] | None = None, lost: list[int] | None = None
) -> dict[str, int]:
    spent = dict.fromkeys(claim.jobs, SPENT)
    outcomes = answered(claim) if outcomes is None else outcomes
    return core.exchange(ExchangeRequest(commits={claim.lease: outcomes}, spent=spent, lost=lost or [])).refused


def ledger_of(bench: Bench, owner: str | None = None) -> Ledger:
    now_day = int(bench.raw.time()[0]) // DAY_S
    return bench.with_link(lambda link: read_ledger(link, now_day - 1, now_day, owner))


def usage_of(bench: Bench, job: str) -> Usage:
    usage = bench.get(job).describe().usage
    assert usage is not None
    return usage


def test_job_and_day_have_the_same_usage_and_its_cost(bench: Bench) -> None:
    core = core_of(bench, "a/0", PRICE)
    job = bench.submit(2, owner="ada")
    assert bench.get(job).describe().usage is None
    commit(core, claimed(core))
    usage = usage_of(bench, job)
    assert (usage.items, usage.windows, usage.tokens, usage.core_s) == (2, 4, 500, 3)
    assert usage.cost is not None
    assert usage.cost.amount == pytest.approx(3 * 0.36 / 3600)
    assert (usage.cost.instance, usage.cost.as_of, usage.cost.per_core_hour) == ("inf2.xlarge", "2026-09-24", 0.36)
    [row] = ledger_of(bench).rows
    assert (row.owner, row.model, row.used) == ("ada", VERSION, Used(2, 4, 500, {PRICE: 3_000_000}))
    assert ledger_of(bench, "bob").rows == []


def test_usage_grows_with_each_commit_and_by_price(bench: Bench) -> None:
    job = bench.submit(200)
    for name, price in (("a/0", PRICE), ("a/1", DEARER), ("a/0", PRICE)):
        core = core_of(bench, name, price)
        core._room = Room(1)
        commit(core, claimed(core))
    used = bench.get(job).used
    assert used is not None
    assert (used.windows, used.core_us) == (12, {PRICE: 6_000_000, DEARER: 3_000_000})
    usage = Usage(**used.shown())
    assert usage.cost is not None
    assert usage.cost.instance is None
    assert usage.cost.amount == pytest.approx((6 * 0.36 + 3 * 0.72) / 3600)
    assert usage.cost.per_core_hour == pytest.approx(0.48)


def test_job_that_was_canceled_meanwhile_pays_for_what_was_done(bench: Bench) -> None:
    core = core_of(bench, "a/0", PRICE)
    job, deleted = bench.submit(1, owner="ada"), bench.submit(1, owner="ada")
    claim = claimed(core)
    bench.cancel(job)
    bench.with_store(lambda store: store.delete(deleted))
    commit(core, claim, [SliceResults(ref, []) for ref, _ in claim.refs])
    assert usage_of(bench, job).core_s == 3
    assert usage_of(bench, job).items == 0
    rows = {row.model: row.used.core_s for row in ledger_of(bench, "ada").rows}
    assert rows == {VERSION: 3, None: 3}
    assert ledger_of(bench).lost == []


def test_work_under_a_lost_lease_is_charged_to_nobody(bench: Bench) -> None:
    core = core_of(bench, "a/0", PRICE)
    job = bench.submit(1)
    claim = claimed(core)
    bench.age(60)
    bench.upkeep.return_lapsed()
    assert commit(core, claim) == {claim.lease: 1}
    assert bench.get(job).describe().usage is None
    found = ledger_of(bench)
    assert found.rows == []
    assert found.lost == [Used(0, 4, 500, {PRICE: 3_000_000})]


def test_work_that_was_handed_back_is_lost_too(bench: Bench) -> None:
    core = core_of(bench, "a/0", PRICE)
    bench.submit(1)
    claim = claimed(core)
    core.hand_back(claim.lease, claim.refs, bench.bell, [1, 100, 2_000_000])
    again = claimed(core)
    commit(core, again, lost=[2, 200, 1_000_000])
    assert ledger_of(bench).lost == [Used(0, 3, 300, {PRICE: 3_000_000})]


def test_failed_items_and_those_of_a_core_without_a_price_are_counted(bench: Bench) -> None:
    core = core_of(bench, "a/0", None)
    job = bench.submit(1)
    claim = claimed(core)
    failure = [{"index": 0, "id": "i0", "status": "failed", "error": {"code": "x", "detail": "y"}}]
    commit(core, claim, [SliceResults(claim.refs[0][0], failure)])
    assert (usage_of(bench, job).items, usage_of(bench, job).cost) == (1, None)


def test_heartbeats_add_up_how_long_a_core_lived_and_worked(bench: Bench) -> None:
    announcer = Announcer(bench.settings, "a/0")

    def beat(process: str, worked_us: int) -> None:
        announcer.beat({"state": "idle"}, [], [], worked=(process, PRICE.encode(), worked_us))
        before = bench.raw.hget("cl:worked", "a/0").split()
        bench.raw.hset("cl:worked", "a/0", f"{before[0]} {int(before[1]) - 1000} {before[2]}")

    beat("p", 0)
    beat("p", 2_000_000)
    beat("p", 5_000_000)
    beat("q", 1_000_000)
    found = ledger_of(bench)
    assert found.busy_s == {PRICE: 6.0}
    assert 2.0 <= found.up_s[PRICE] < 60


def test_days_that_are_over_are_forgotten(bench: Bench) -> None:
    for day in (100, 101):
        bench.raw.zadd("cl:usage_days", {day: day})
        bench.raw.hset(f"cl:usage:{day}", "ada|m|-", "1 1 1 1")
    Announcer(bench.settings, "a/0").beat({}, [], [], worked=("p", NOTHING, 0))
    bench.upkeep.prune()
    assert bench.raw.keys("cl:usage:10*") == []
    assert bench.raw.zcard("cl:usage_days") == 1


def row(day: int, owner: str, model: str, seconds: int, price: Price | None = PRICE) -> DayUsage:
    return DayUsage(day, owner, model, Used(1, 2, 10, {price: seconds * 1_000_000}))


def test_report_groups_by_any_of_day_month_key_and_model() -> None:
    first = day_number(date(2026, 10, 31))
    ledger = Ledger([row(first, "ada", "m@1", 1), row(first + 1, "ada", "m@2", 2), row(first + 1, "bob", "m@2", 4)])
    found = report(ledger, first, first + 1, ["month", "key"], whole=False)
    assert [(each.month, each.key, each.model, each.core_s) for each in found.data] == [
        ("2026-10", "ada", None, 1),
        ("2026-11", "ada", None, 2),
        ("2026-11", "bob", None, 4),
    ]
    assert (found.from_, found.to) == ("2026-10-31", day_text(first + 1))
    assert [each.core_s for each in report(ledger, first, first, ["model"], whole=False).data] == [1, 6]
    [total] = found.total
    assert (total.items, total.windows, total.tokens, total.core_s) == (3, 6, 30, 7)
    assert total.cost is not None
    assert total.cost.amount == pytest.approx(7 * 0.36 / 3600)
    assert found.lost is None
    assert found.host is None


def test_currencies_and_work_without_a_price_stay_apart() -> None:
    euro = Price(1.0, "EUR", "rack-7")
    ledger = Ledger([row(1, "ada", "m", 1), row(1, "ada", "m", 2, euro), row(1, "ada", "m", 4, None)], up_s={PRICE: 36})
    found = report(ledger, 1, 1, ["key"], whole=True)
    assert [(each.core_s, each.cost and each.cost.currency) for each in found.data] == [
        (4, None),
        (2, "EUR"),
        (1, "USD"),
    ]
    assert found.host is not None
    assert [cost.amount for cost in found.host.cost] == [pytest.approx(0.0036)]


def test_usage_of_a_job_is_read_as_it_is_written() -> None:
    text = f"3 4 500;3000000 {PRICE.encode()};7 -"
    assert Used.decode(text) == Used(3, 4, 500, {PRICE: 3_000_000, None: 7})
    assert Used.decode(text).encode() == text
