"""What several cells answered becomes one answer: pages, usage, history, metrics, changes that missed some cells."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cells.calls import Reply
from api.cells.merging import fleet
from api.cells.merging.exposition import expositions
from api.cells.merging.pages import LISTS
from api.cells.merging.usage import usage
from api.cells.steering import steer
from api.cells.steps import before_all, cell_of_step
from corelane.domain.ids import age_key, is_job_id, new_job_id, on_cell
from corelane.domain.usage import UsageReport


def page_of(jobs: list[str], after: str | None, limit: int, looked: int) -> dict[str, Any]:
    """Return a cell's page: of the jobs whose ids end in a digit, and at most so many looked at."""
    older = [job for job in sorted(jobs, reverse=True) if after is None or job < after]
    seen: list[str] = []
    for place, job in enumerate(older[:looked]):
        if job[-1].isdigit():
            seen.append(job)
        if len(seen) == limit or place == looked - 1:
            has_more = place + 1 < len(older)
            return {"data": [{"id": each} for each in seen], "has_more": has_more, "next": job if has_more else None}
    return {"data": [{"id": each} for each in seen], "has_more": False, "next": None}


@given(
    st.lists(st.tuples(st.integers(0, 50), st.sampled_from("012")), max_size=40),
    st.integers(1, 7),
    st.integers(1, 7),
)
def test_merged_pages_miss_nothing_and_repeat_nothing(made: list[tuple[int, str]], limit: int, looked: int) -> None:
    cells: dict[str, list[str]] = {cell: [] for cell in "012"}
    for ms, cell in made:
        cells[cell].append(new_job_id(ms, cell))
    pages, found, after = LISTS["jobs"], list[str](), None
    for _ in range(200):
        query = [("limit", str(limit)), *([("after", after)] if after else [])]
        asked = {cell: dict(pages.ask(query, cell)).get("after") for cell in cells}
        answers = {cell: page_of(jobs, asked[cell], limit, looked) for cell, jobs in cells.items()}
        page = pages.merge(answers, query)
        assert len(page["data"]) <= limit
        found += [job["id"] for job in page["data"]]
        after = page["next"]
        if not page["has_more"]:
            break
    wanted = [job for jobs in cells.values() for job in jobs if job[-1].isdigit()]
    assert found == sorted(wanted, key=age_key, reverse=True)


def test_lines_of_two_cells_with_the_same_id_stay_on_one_page() -> None:
    lines = {cell: {"data": [{"id": f"{ms}-0"} for ms in (9, 5, 1)], "has_more": False, "next": None} for cell in "01"}
    page = LISTS["audit"].merge(lines, [("limit", "1")])
    assert [line["id"] for line in page["data"]] == ["9-0", "9-0"]
    assert page["next"] == "9-0"


def test_dead_letters_are_merged_oldest_first() -> None:
    letters = {
        cell: {"data": [{"id": f"evt_{cell}{n}_x", "ended_at": f"2026-11-22T00:00:0{n}Z"} for n in seconds], **end}
        for cell, seconds, end in (
            ("0", (1, 4), {"has_more": True, "next": f"{1_795_305_604_000}.evt_04_x"}),
            ("1", (2, 3, 5), {"has_more": False, "next": None}),
        )
    }
    page = LISTS["deliveries"].merge(letters, [])
    assert [letter["id"] for letter in page["data"]] == ["evt_01_x", "evt_12_x", "evt_13_x", "evt_04_x"]
    assert page["next"] == letters["0"]["next"]


def row(model: str, items: int, amount: float | None, per_core_hour: float = 0.5) -> dict[str, Any]:
    cost = {"currency": "USD", "instance": None, "as_of": None, "per_core_hour": per_core_hour, "amount": amount}
    counts = {"items": items, "windows": items, "tokens": None, "core_s": 1.5}
    return {**dict.fromkeys(("day", "month", "key")), "model": model, **counts, "cost": cost if amount else None}


def test_usage_is_summed_by_group_and_currency() -> None:
    def report(*rows: dict[str, Any]) -> dict[str, Any]:
        host = {"up_s": 2.0, "busy_s": 1.0, "cost": [rows[0]["cost"]] if rows[0]["cost"] else []}
        about = {"object": "usage", "from": "2026-11-22", "to": "2026-11-22", "group_by": ["model"]}
        return {**about, "data": list(rows), "total": list(rows[:1]), "lost": [], "host": host}

    found = {"0": report(row("a", 1, 1.0, 0.5), row("b", 1, None)), "1": report(row("a", 2, 2.0, 2.0))}
    merged = UsageReport.model_validate(usage(found))
    assert [(each.model, each.items, each.core_s) for each in merged.data] == [("a", 3, 3.0), ("b", 1, 1.5)]
    assert merged.data[0].cost is not None
    assert merged.data[0].cost.amount == 3.0
    assert merged.data[0].cost.per_core_hour == pytest.approx(1.0)
    assert merged.data[0].tokens is None
    assert merged.host is not None
    assert (merged.host.up_s, merged.host.cost[0].amount) == (4.0, 3.0)


def test_points_of_the_same_time_are_one() -> None:
    def point(second: int, items: float, p95: float | None) -> dict[str, Any]:
        summed = dict.fromkeys(fleet.SUMMED, 0.0) | {"items_s": items}
        rest = dict.fromkeys((*fleet.LARGEST, *fleet.MEAN)) | {"p95_s": p95, "busy": items / 10}
        return {"at": f"2026-11-22T00:00:{second:02}.000Z", **summed, **rest}

    found = {
        "0": {"points": [point(3, 1.0, 0.5), point(13, 2.0, None)], "marks": []},
        "1": {"points": [point(7, 4.0, 0.2)], "marks": [{"at": "x", "kind": "load", "text": "m"}]},
    }
    merged = fleet.history(found)
    assert [(each["items_s"], each["p95_s"], each["busy"]) for each in merged["points"]] == [
        (5.0, 0.5, 0.25),
        (2.0, None, 0.2),
    ]
    assert merged["marks"][0]["text"] == "cell 1: m"


def test_metrics_get_the_label_of_their_cell() -> None:
    text = '# HELP a_total A.\n# TYPE a_total counter\na_total{x="}"} 1.0\n# HELP b B.\n# TYPE b gauge\nb 2.0\n'
    assert expositions({"0": text, "1": text}).splitlines() == [
        *("# HELP a_total A.", "# TYPE a_total counter", 'a_total{cell="0",x="}"} 1.0', 'a_total{cell="1",x="}"} 1.0'),
        *("# HELP b B.", "# TYPE b gauge", 'b{cell="0"} 2.0', 'b{cell="1"} 2.0'),
    ]


def test_a_change_says_where_it_was_not_made() -> None:
    def reply(status: int) -> Reply:
        return Reply(status, [(b"content-length", b"9")], orjson.dumps({"status": status, "detail": "no"}))

    assert steer({"0": reply(202), "1": reply(202)}).status == 202
    assert steer({"0": reply(404), "1": reply(202)}).status == 202
    assert steer({"0": reply(403), "1": reply(403)}).json()["detail"] == "no"
    partly = steer({"0": reply(202), "1": reply(503), "2": reply(202)})
    assert partly.status == 503
    assert partly.json()["detail"] == "cell 1: no (done in cells 0, 2, not in cell 1; send it again)"
    assert dict(partly.headers)[b"content-length"] == str(len(partly.body)).encode()
    assert steer({"0": reply(404), "1": reply(503)}).status == 503


def test_steps_go_through_the_cells_in_order() -> None:
    assert is_job_id(before_all("1"))
    assert before_all("1") > new_job_id(2**47, "1")
    assert cell_of_step(orjson.dumps({"after": before_all("1")}), ["0", "1"]) == "1"
    assert cell_of_step(orjson.dumps({"after": on_cell(before_all("1"), "9")}), ["0", "1"]) == "0"
    assert [cell_of_step(body, ["0"]) for body in (b"{", b"[]", b"{}", b'{"after": 5}')] == ["0"] * 4
