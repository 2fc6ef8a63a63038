"""The lines of a batch: whatever a file holds and however it comes in, each line has one outcome under its number."""

import io
import itertools
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.domain.batches import window_s
from corelane.plugins.files.batches.checking import MAX_GROUPS, PlannedLine, Sorter
from corelane.plugins.files.batches.output import outcome_line
from corelane.settings import Settings
from corelane.submitting.ndjson import InputLine, cut_lines

LIMIT = 400
SETTINGS = Settings(max_body_bytes=1024, max_context_chars=200)
BATCH = "batch_00000000000000000000000000"


def line(custom_id: object = "a", **changes: Any) -> dict[str, Any]:
    body = {"question": "Who?", "context": "Ada."} | changes.pop("body", {})
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/answers", "body": body} | changes


def sorter() -> Sorter:
    return Sorter(SETTINGS, "/v1/answers", lambda _: io.BytesIO())


def planned(value: object, number: int = 1) -> PlannedLine:
    return sorter().sort(InputLine(number, orjson.dumps(value)))


PIECES = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([b"\n", b"\r\n", b" ", b"\t\n", b"\xef\xbb\xbf", b"\xff\n", b"{}", b"[1]\n", b"x" * (LIMIT + 1)]),
    st.builds(lambda name: orjson.dumps(line(name)), st.sampled_from(["a", "b", "c", "", 7, None])),
    st.builds(lambda name: orjson.dumps(line(name)) + b"\n", st.text(max_size=3)),
    st.builds(lambda top_k: orjson.dumps(line("k", body={"options": {"top_k": top_k}})) + b"\n", st.integers(-1, 4)),
)


@given(parts=st.lists(PIECES, max_size=12), cuts=st.lists(st.integers(0, 3000), max_size=8))
def test_every_line_that_is_not_blank_has_one_outcome_under_its_number(parts: list[bytes], cuts: list[int]) -> None:
    content = b"".join(parts)
    edges = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})
    pieces = [content[start:end] for start, end in itertools.pairwise(edges)]
    lines, outcomes = sorter(), []
    for raw in cut_lines(pieces, LIMIT):
        assert raw.text is None or len(raw.text) <= LIMIT
        planned = lines.sort(raw)
        assert PlannedLine.decode(planned.encode()) == planned
        if planned.error is None:
            assert planned.group is not None
            outcomes.append(orjson.loads(outcome_line(BATCH, planned, {"index": 3, "id": None, "status": "succeeded"})))
        else:
            outcomes.append(orjson.loads(outcome_line(BATCH, planned, None, planned.error)))
    expected = content.split(b"\n")
    expected[0] = expected[0].removeprefix(b"\xef\xbb\xbf")
    assert [each["line"] for each in outcomes] == [n for n, text in enumerate(expected, 1) if text.strip()]
    assert len({each["id"] for each in outcomes}) == len(outcomes)
    good_ids = [each["custom_id"] for each in outcomes if each["error"] is None]
    assert len(set(good_ids)) == len(good_ids)
    for each in outcomes:
        assert (each["response"] is None) != (each["error"] is None)


@pytest.mark.parametrize(
    ("value", "code", "said"),
    [
        ({"question": "q", "context": "c"}, "invalid_input", "this is a line for `corelane batch`;"),
        (line(None), "invalid_input", "custom_id"),
        (line(True), "invalid_input", "custom_id"),
        (line(""), "invalid_input", "custom_id"),
        (line("x" * 257), "invalid_input", "custom_id"),
        (line(method="GET"), "invalid_input", "'POST'"),
        (line(url="/v1/chat/completions"), "invalid_input", "'/v1/answers'"),
        (line(color="red"), "invalid_input", "color"),
        (line(body={"color": "red"}), "invalid_input", "body.color"),
        (line(body={"question": " "}), "invalid_input", "body.question"),
        (line(body={"context": "x" * 201}), "too_large", "the context is longer than 200"),
        (line(body={"options": {"top_k": 0}}), "invalid_input", "body.options.top_k"),
        (line(body={"options": {"min_precision": 0.5, "no_answer": False}}), "invalid_input", "min_precision"),
    ],
)
def test_bad_line_says_what_is_wrong(value: object, code: str, said: str) -> None:
    found = planned(value, 7)
    assert found.error is not None
    assert (found.number, found.group, found.error[0]) == (7, None, code)
    assert said in found.error[1]


def test_repeated_custom_id_is_refused_by_the_line_that_has_it_already() -> None:
    lines = sorter()
    first = lines.sort(InputLine(3, orjson.dumps(line("a", url="?"))))
    second = lines.sort(InputLine(5, orjson.dumps(line("a"))))
    assert first.error is not None
    assert second.error is not None
    assert (second.error[0], "line 3" in second.error[1]) == ("duplicate_custom_id", True)


def test_same_options_in_other_words_are_one_group_and_too_many_are_refused() -> None:
    lines = sorter()
    bodies = [{}, {"options": {}}, {"options": {"top_k": 1}}, {"model": "other"}, {"options": {"top_k": 2}}]
    bodies += [{"model": f"m{n}"} for n in range(MAX_GROUPS)] + [{}]
    planned = [lines.sort(InputLine(n, orjson.dumps(line(f"c{n}", body=body)))) for n, body in enumerate(bodies, 1)]
    assert [each.group for each in planned[:5]] == [0, 0, 0, 1, 2]
    assert [each.error[0] for each in planned if each.error] == ["too_many_groups"] * 3
    assert planned[-1].group == 0


@pytest.mark.parametrize(("text", "seconds"), [("24h", 86_400), ("90s", 90), ("30d", 2_592_000), ("5m", 300)])
def test_window_is_read(text: str, seconds: int) -> None:
    assert window_s(text) == seconds


@pytest.mark.parametrize("text", ["", "24", "h", "0h", "-1h", "31d", "1.5h", "24H", "24h "])
def test_window_that_cannot_be_honoured_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="24h"):
        window_s(text)
