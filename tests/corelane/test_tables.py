"""Tables as input and output of ``corelane run`` and ``batch``, against real services of real sockets."""

import csv
import gzip
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas
import polars
import pyarrow as pa
import pytest
from pyarrow import parquet

from corelane.cli.tables import reading
from corelane.cli.tables.forms import Contents, form_of
from corelane.cli.tables.reading import Lines, open_source
from corelane.cli.tables.writing import join
from corelane.domain.jobs import DEFAULT_TASK
from corelane.errors import InvalidInput
from corelane.tasks.registry import TASKS
from corelane.tasks.results import unanswered_result
from tests.corelane.stand_in import StandIn
from tests.corelane.test_cli_batch import COMMAND
from tests.corelane.test_cli_batch import run as batch
from tests.corelane.test_cli_run import call
from tests.tools.waiting import eventually

TEXTS = TASKS["text-classification"]
MODEL = "text-classification@1"

ROWS = {
    "id": [11, 12, 13, 14],
    "body": ["Good.", None, " ", 'Bad, "very"\nbad.'],
    "label": ["a", "b", None, "d"],
    "at": [1, 2, 3, 4],
}


def table(**changes: Any) -> pa.Table:
    made = pa.table({**ROWS, **changes})
    return made.set_column(3, "at", made["at"].cast(pa.timestamp("ns"))) if "at" not in changes else made


def write(path: Path, content: pa.Table) -> Path:
    """Write a table in the form of its name, as pandas does."""
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as file:
        kind = form_of(path).contents
        if kind is Contents.PARQUET:
            parquet.write_table(content, file, row_group_size=3)
        else:
            text = content.to_pandas().to_csv(index=False, sep="\t" if kind is Contents.TSV else ",")
            file.write(text.encode())
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        data = io.BytesIO(file.read())
    match form_of(path).contents:
        case Contents.PARQUET:
            return parquet.read_table(data).to_pylist()
        case Contents.LINES:
            return [orjson.loads(line) for line in data]
        case kind:
            text = io.StringIO(data.getvalue().decode(), newline="")
            return list(csv.DictReader(text, delimiter="\t" if kind is Contents.TSV else ","))


@pytest.mark.parametrize("source", ["t.csv", "t.tsv", "t.parquet", "t.csv.gz", "t.parquet.gz"])
@pytest.mark.parametrize("output", ["o.csv", "o.tsv", "o.parquet", "o.jsonl", "o.csv.gz", "o.parquet.gz", "o.jsonl.gz"])
def test_every_form_becomes_every_other(null_service: str, source: str, output: str, tmp_path: Path) -> None:
    given, made = write(tmp_path / source, table()), tmp_path / output
    asked = (MODEL, given, "-o", made, "--map", "text=body", "--url", null_service)
    done = call(*asked)
    assert (done.exit_code, "4 lines: 2 answered, 2 failed" in done.stderr.replace("\n", " ")) == (2, True), done.stderr
    found = rows_of(made)
    assert [str(row["id"]) for row in found] == ["11", "12", "13", "14"]
    assert [row["status"] for row in found] == ["succeeded", "failed", "failed", "succeeded"]
    kept = "label" if form_of(made).contents is Contents.LINES else "input_label"
    assert [row[kept] or None for row in found] == ["a", "b", None, "d"]
    assert str(found[0]["at"]).startswith("1970-01-01 00:00:00")
    assert f"row 2 of {source}: text: this is required" in str(found[1]["error"])
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([source, output, f"{output}.run"])
    before = made.read_bytes()
    again = call(*asked)
    assert (again.exit_code, made.read_bytes(), "4 lines: 2 answered" in again.stderr) == (2, before, True)
    other = call(*asked, "-O", "top_k=1")
    assert (other.exit_code, "--top-k was not given, now it is 1" in other.stderr) == (1, True)
    write(given, table().slice(0, 3))
    fewer = call(*asked)
    assert (fewer.exit_code, "is not of these items" in fewer.stderr, made.read_bytes()) == (1, True, before)


def test_parquet_says_which_library_it_needs_and_csv_needs_none(
    null_service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = write(tmp_path / "t.csv", table())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    asked = (MODEL, given, "--map", "text=body", "--url", null_service, "-o")
    assert call(*asked, tmp_path / "o.csv").exit_code == 2
    done = call(*asked, tmp_path / "o.parquet")
    assert (done.exit_code, "needs pyarrow: run `" in done.stderr, "[tables]" in done.stderr) == (1, True, True)


def test_a_table_without_rows_becomes_one(null_service: str, tmp_path: Path) -> None:
    given, made = write(tmp_path / "t.parquet", table().slice(0, 0)), tmp_path / "o.parquet"
    for _ in range(2):
        assert call(MODEL, given, "-o", made, "--map", "text=body", "--url", null_service).exit_code == 0
    assert parquet.read_table(made).schema.names[:4] == ["index", "id", "label", "at"]


def test_twenty_thousand_rows_are_joined_in_order_in_little_memory(null_service: str, tmp_path: Path) -> None:
    many = 20_000
    made, rows = tmp_path / "o.parquet", {"id": range(many), "text": ["Good."] * many, "more": ["x" * 2000] * many}
    given = write(tmp_path / "t.parquet", pa.table({name: pa.array(column) for name, column in rows.items()}))
    asked = [MODEL, str(given), "-o", str(made), "--url", null_service]
    code = (
        "import sys; from corelane.cli.app import make_cli; make_cli()(['run', *sys.argv[1:]], standalone_mode=False);"
        "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
    )
    done = subprocess.run([sys.executable, "-c", code, *asked], capture_output=True, check=True, timeout=200)
    assert int(done.stdout) < 300_000  # kB
    found = parquet.read_table(made)
    assert found["index"].to_pylist() == found["id"].to_pylist() == [*range(many)]
    assert found["more"].equals(parquet.read_table(given)["more"])


def test_columns_of_parquet_keep_their_types(null_service: str, tmp_path: Path) -> None:
    extra = {"tags": [["x"], [], None, ["y"]], "kind": pa.array(["k"] * 4).dictionary_encode()}
    given, made = (
        write(tmp_path / "t.parquet", table(body=pa.array(["a", "b", "c", "d"]).dictionary_encode(), **extra)),
        tmp_path / "o.parquet",
    )
    assert call(MODEL, given, "-o", made, "--map", "text=body", "--url", null_service).exit_code == 0
    found, before = parquet.read_table(made), parquet.read_table(given)
    for name in ("id", "at", "tags", "kind"):
        assert found[name].combine_chunks().equals(before[name].combine_chunks()), name
    assert found.schema.names[:6] == ["index", "id", "input_label", "at", "tags", "kind"]
    assert call(MODEL, given, "-o", tmp_path / "o.csv", "--map", "text=body", "--url", null_service).exit_code == 0
    assert [row["tags"] for row in rows_of(tmp_path / "o.csv")] == ['["x"]', "[]", "", '["y"]']


BAD_FILES: list[tuple[str, bytes, str]] = [
    ("t.csv", b"", "the row that names its columns is not there"),
    ("t.csv", b"a,b\n1,2\n", "t.csv has `a`, `b`: it needs `text`; name a column for a field, as in --map text=COLUMN"),
    ("t.csv", b"text,x,text\na,b,c\n", "t.csv has the column 'text' twice: rename one of them"),
    ("t.csv", b"PAR1....", "t.csv begins like .parquet: name it by what it holds"),
    ("t.csv", b'{"text": "a"}\n', "t.csv begins like .jsonl"),
    ("t.csv", "text\na\n".encode("utf-16"), "begins like text in UTF-16"),
    ("t.jsonl", b"PK\x03\x04", "begins like .zip or .xlsx"),
    ("t.parquet", b"text\na\n", "t.parquet does not begin like .parquet"),
    ("t.parquet", b"", "t.parquet does not begin like .parquet"),
    ("t.parquet", b"PAR1 and no more PAR1", "t.parquet is not whole"),
    ("t.csv.gz", b"text\na\n", "t.csv.gz does not begin like .gz"),
    ("t.csv.gz", gzip.compress(b"text\n" + os.urandom(9999).hex().encode())[:5000], "t.csv.gz is damaged"),
    ("t.npy", b"\x93NUMPY", "holds vectors, and an item of text-classification here is not one"),
    ("t.xlsx", b"x", "has another ending than .jsonl"),
    ("t.txt", b"x", "has another ending than .jsonl"),
    ("t.json", b"[]", "has another ending than .jsonl"),
]


@pytest.mark.parametrize(("name", "content", "said"), BAD_FILES)
def test_a_file_that_cannot_be_read_is_one_sentence(
    null_service: str, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    done = call(MODEL, path, "-o", tmp_path / "o.csv", "--url", null_service)
    assert (done.exit_code, said in done.stderr) == (1, True), done.stderr
    assert not (tmp_path / "o.csv").exists()


def test_bad_rows_of_a_csv_fail_alone_and_the_rest_goes_on(
    null_service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LONGEST", 1000)
    path, made = tmp_path / "t.csv", tmp_path / "o.parquet"
    path.write_bytes(
        b"\xef\xbb\xbftext,more\r\n"
        b"fine,1\r\n\r\n"
        b'"never closed,2\r\n'
        b"fine,3\r\n"
        b"f\xffne,4\r\n"
        b"too,many,5\r\n"
        b'"mid"dle",6\r\n' + b"x" * 3000 + b",7\r\n"
        b'"two\r\nlines",8'
    )
    done = call(MODEL, path, "-o", made, "--url", null_service)
    assert done.exit_code == 2, done.stderr
    found = rows_of(made)
    assert [(row["index"], row["more"], row["error"] is None) for row in found] == [
        (0, "1", True),
        (2, None, False),
        (3, "3", True),
        (4, "4", False),
        (5, "many", False),
        (6, None, False),
        (7, None, False),
        (8, "8", True),
    ]
    told = [row["error"] for row in found if row["error"]]
    for number, part in enumerate(
        [
            "row 3 of t.csv has a quote that never ends",
            "row 5 of t.csv is not text in UTF-8: save",
            "row 6 of t.csv has 3 cells, for 2 columns",
            "row 7 of t.csv has a quote that never ends, or one inside a cell",
            "not written twice, or more than 1,000 characters: mend the quotes, or cut the row",
        ]
    ):
        assert part in told[number]


def test_bad_rows_of_parquet_fail_alone(null_service: str, tmp_path: Path) -> None:
    raw = pa.Array.from_buffers(pa.string(), 2, pa.array([b"ok", b"\xff"], pa.binary()).buffers())
    columns = {"binary": raw, "list": pa.array([["a"], None]), "struct": pa.array([{"a": 1}, None])}
    found = {}
    for name, column in (columns | {"long": pa.array(["x" * 2_100_000, "ok"])}).items():
        given, made = write(tmp_path / f"{name}.parquet", pa.table({"text": column})), tmp_path / f"{name}-o.csv"
        assert call(MODEL, given, "-o", made, "--url", null_service).exit_code == 2
        found[name] = [row["error"] for row in rows_of(made)]
    assert found["binary"] == [
        "",
        "row 2 of binary.parquet cannot be written as JSON: str is not valid UTF-8: surrogates not allowed",
    ]
    assert found["list"] == [
        "row 1 of list.parquet: text: a text is wanted",
        "row 2 of list.parquet: text: this is required",
    ]
    assert "text: a text is wanted" in found["struct"][0]
    assert found["long"][0].startswith("row 1 of long.parquet: the text is longer than 2,000,000 characters: cut it")


def test_fields_that_are_no_text_are_json_in_a_csv(null_service: str, tmp_path: Path) -> None:
    path, made = tmp_path / "t.csv", tmp_path / "o.csv"
    path.write_text('query,texts\nWho?,"[""a"", ""b""]"\nWho?,a\n')
    assert call("text-ranking@1", path, "-o", made, "--url", null_service).exit_code == 2
    assert [row["error"] for row in rows_of(made)] == ["", "row 2 of t.csv: texts: a list is wanted"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{tmp}", "is a folder: name a file in it"),
        ("{tmp}/no.csv", "there is no file"),
        ("no.txt", "there is no file no.txt"),
        ("./no", "there is no file"),
        ("my tickets.parquet.gz", "there is no file my tickets.parquet.gz"),
        ("txt=hello", "there is no such field, did you mean `text`?"),
    ],
)
def test_what_looks_like_a_file_is_never_judged_as_text(
    null_service: str, tmp_path: Path, given: str, said: str
) -> None:
    done = call(MODEL, given.replace("{tmp}", str(tmp_path)), "--url", null_service)
    assert (done.exit_code, said in done.stderr, "text=" in done.stderr) == (1, True, True), done.stderr


@pytest.mark.parametrize(
    "given", [["text=notes.txt"], ["It costs 3.50"], ["and/or"], ["Fine."], ["x" * 5000], ["a\0b"]]
)
def test_what_does_not_is_text(null_service: str, given: list[str]) -> None:
    assert call(MODEL, *given, "--url", null_service).exit_code == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["t.csv", "--map", "text"], "--map text: it is FIELD=COLUMN"),
        (["t.csv", "--map", "txt=body"], "--map txt=body: there is no such field, did you mean `text`?"),
        (["t.csv", "--map", "text=bdy"], "--map text=bdy: t.csv has `id`, `body`, `label`, `at`"),
        (["t.jsonl", "--map", "text=body"], "--map names columns of a table, and"),
        (["t.csv", "-o", "o.npy", "--map", "text=body"], "a result of text-classification is not one vector"),
        (["t.csv", "-o", "o.xlsx"], "o.xlsx has another ending than .jsonl"),
        (["https://example.com/x.jsonl", "-o", "o.csv"], "items at a URL are lines that the service reads"),
    ],
)
def test_options_that_do_not_fit_are_one_sentence(
    null_service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "t.csv", table())
    (tmp_path / "t.jsonl").write_text("{}\n")
    done = call(MODEL, *given, "--url", null_service)
    assert (done.exit_code, said in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize("output", ["o.csv", "o.parquet", "o.jsonl.gz"])
def test_a_run_killed_at_any_point_loses_and_doubles_nothing(service: StandIn, tmp_path: Path, output: str) -> None:
    path, made = tmp_path / "t.csv", tmp_path / output
    path.write_text("id,question,context,more\n" + "".join(f"{n},Who?,w{n} x,m{n}\n" for n in range(3000)))
    service.polls_until_final = 10_000
    command = [sys.executable, "-c", COMMAND, str(path), "-o", str(made), "--url", service.url]
    lines = tmp_path / f"{output}.lines"
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        eventually(lambda: lines.exists() and lines.stat().st_size > 1000)
        assert batch(path, "-o", made, "--url", service.url)[1] == f"another command is writing {made}\n"
        process.send_signal(signal.SIGKILL)
    assert not made.exists()
    for job in service.jobs.values():
        job["polls"] = 0
    service.polls_until_final = 0
    # Killed while it joins: what it wrote aside is dropped, and the lines are there.
    (tmp_path / f"{output}.new").write_bytes(b"half")
    assert batch(path, "-o", made, "--url", service.url)[0] == 0
    assert [(str(row["index"]), str(row["id"]), row["more"]) for row in rows_of(made)] == [
        (str(n), str(n), f"m{n}") for n in range(3000)
    ]
    asked = sorted(int(item["id"]) for job in service.jobs.values() for item in job["body"]["items"])
    assert asked == list(range(3000))
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(["t.csv", output, f"{output}.run"])


def test_lines_become_a_table_and_ids_are_theirs(null_service: str, tmp_path: Path) -> None:
    path, made = tmp_path / "t.jsonl.gz", tmp_path / "o.parquet"
    path.write_bytes(gzip.compress(b'{"id": 7, "text": "a"}\n\n{"text": "b"}\n'))
    assert call(MODEL, path, "-o", made, "--url", null_service).exit_code == 0
    assert [(row["index"], row["id"], row["status"]) for row in rows_of(made)] == [
        (0, "7", "succeeded"),
        (2, None, "succeeded"),
    ]


def lines_of(path: Path, task: str = "handler", **schema: Any) -> list[Any]:
    """Return the items that a model with this schema is asked, or what is wrong with them."""
    info = {"input_schema": schema} if schema else {}
    with open_source(path, TASKS[task], info, ()) as source:
        read = list(source.lines())
        assert source.count() == len(read)
        return [line.problem or orjson.loads(line.text) for line in read]


VECTOR: dict[str, Any] = {
    "properties": {"vector": {"type": "array", "items": {"type": "number"}}},
    "required": ["vector"],
}


@pytest.mark.parametrize("ending", [".npy", ".npy.gz"])
def test_vectors_are_items_of_models_that_take_them(tmp_path: Path, ending: str) -> None:
    path, made = tmp_path / f"v{ending}", io.BytesIO()
    np.save(made, np.array([[1, 2], [3, 4.5]], np.float32))
    path.write_bytes(gzip.compress(made.getvalue()) if ending == ".npy.gz" else made.getvalue())
    assert lines_of(path, **VECTOR) == [{"vector": [1.0, 2.0]}, {"vector": [3.0, 4.5]}]
    with pytest.raises(InvalidInput, match="an item of handler here is not one"):
        lines_of(path, properties={"text": {"type": "string"}})
    short = tmp_path / "short.npy"
    short.write_bytes(made.getvalue()[:-1])
    with pytest.raises(InvalidInput, match="is not whole"):
        lines_of(short, **VECTOR)
    np.save(short, np.array(["a"]))
    with pytest.raises(InvalidInput, match="rows of numbers are wanted"):
        lines_of(short, **VECTOR)


def test_cells_are_what_a_model_of_ones_own_takes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,name,age,more\n1,7,8,x\n2,Ada,old,\n")
    fields = {"name": {"type": "string"}, "age": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}
    assert lines_of(path, properties=fields) == [
        {"id": "1", "name": "7", "age": 8},
        {"id": "2", "name": "Ada", "age": "old"},
    ]
    assert lines_of(path)[0] == {"id": "1", "name": "7", "age": "8", "more": "x"}
    numbers = write(tmp_path / "t.parquet", pa.table({"id": [1.5, None], "name": ["a", "b"]}))
    assert lines_of(numbers, properties=fields) == [{"id": "1.5", "name": "a"}, {"name": "b"}]


def joined(tmp_path: Path, name: str, task: str, results: list[dict[str, Any]]) -> Path:
    """Write an output of results of a task."""
    lines, path = io.BytesIO(), tmp_path / name
    for index, each in enumerate(results):
        whole = {**unanswered_result(task, index, f"i{index}", "succeeded"), "model": "m@1", **each}  # type: ignore[arg-type]
        lines.write(orjson.dumps(whole) + b"\n")
    join(path, TASKS[task], lines, Lines(io.BytesIO(), TASKS[task]), len(results))
    return path


VECTORS: list[dict[str, Any]] = [
    {"embedding": "AACAPwAAAEA="},
    {"embedding": None, "error": {"code": "x", "detail": "too long"}},
    {"embedding": [0.5, 0.25]},
]


def test_vectors_are_lists_of_one_size_for_every_reader(tmp_path: Path) -> None:
    path = joined(tmp_path, "o.parquet", "feature-extraction", VECTORS)
    assert parquet.read_schema(path).field("embedding").type == pa.list_(pa.float32(), 2)
    by_pandas, by_polars = pandas.read_parquet(path), polars.read_parquet(path)
    assert by_pandas["embedding"][0].dtype == np.float32
    assert by_polars.schema["embedding"] == polars.Array(polars.Float32, 2)
    assert by_polars["embedding"].to_list() == [[1.0, 2.0], None, [0.5, 0.25]]
    assert by_pandas["error"][1] == "too long"
    vectors = np.load(joined(tmp_path, "o.npy", "feature-extraction", VECTORS))
    assert (vectors.dtype, vectors.shape) == (np.float32, (3, 2))
    assert np.array_equal(vectors, np.array([[1, 2], [np.nan, np.nan], [0.5, 0.25]], np.float32), equal_nan=True)
    packed = joined(tmp_path, "o.npy.gz", "feature-extraction", []).read_bytes()
    assert np.load(io.BytesIO(gzip.decompress(packed))).shape == (0, 0)
    rows = rows_of(joined(tmp_path, "o.csv", "feature-extraction", VECTORS))
    assert [row["embedding"] for row in rows] == ["[1.0,2.0]", "", "[0.5,0.25]"]


def test_cells_of_several_types_lose_nothing(tmp_path: Path) -> None:
    outputs = [{"n": 2**60 + 1, "v": [1, 2], "m": 1}, {"n": 0.5, "v": [3, 4], "m": "a"}]
    path = joined(tmp_path, "o.parquet", "handler", [{"output": each} for each in outputs])
    found = parquet.read_table(path)
    assert found["n"].to_pylist() == [float(2**60), 0.5]
    assert (found["v"].to_pylist(), found["m"].to_pylist()) == (["[1,2]", "[3,4]"], ["1", '"a"'])


LABELS = [{"label": "GOOD", "score": 0.75}, {"label": "BAD", "score": 0.25}]


@pytest.mark.parametrize(
    ("task", "result", "columns"),
    [
        (
            "text-classification",
            {"labels": LABELS},
            {"label": "GOOD", "score": 0.75, "labels": orjson.dumps(LABELS).decode()},
        ),
        ("zero-shot-classification", {"labels": LABELS[:1]}, {"label": "GOOD", "score": 0.75}),
        (
            DEFAULT_TASK,
            {"answer": {"text": "Ada", "start": 0, "end": 3, "score": 0.5}},
            {"answer": "Ada", "start": 0, "end": 3, "score": 0.5, "no_answer_score": None},
        ),
        ("token-classification", {"entities": []}, {"entities": "[]"}),
        ("text-ranking", {"ranking": [{"index": 0}]}, {"ranking": '[{"index":0}]'}),
        (
            "handler",
            {"output": {"name": "Ada", "n": 2**63, "index": 3, "ok": True}},
            {"name": "Ada", "n": str(2**63), "output_index": 3, "ok": True},
        ),
        ("handler", {"output": "text"}, {"output": "text"}),
    ],
)
def test_results_are_flat_columns_as_far_as_they_are_flat(
    tmp_path: Path, task: str, result: dict[str, Any], columns: dict[str, Any]
) -> None:
    [row] = rows_of(joined(tmp_path, "o.parquet", task, [result]))
    ends = {"windows": 0, "error": None, "model": "m@1"}
    assert row == {"index": 0, "id": "i0", "status": "succeeded", **columns, **ends}
    assert [*row][-3:] == [*ends]
