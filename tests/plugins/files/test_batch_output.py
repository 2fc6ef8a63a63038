"""The output of a batch while it grows: its first lines, in order, each as it is in the files at the end."""

from operator import itemgetter

import orjson
import pytest

from tests.api.conftest import Service
from tests.corelane.store_bench import VERSION, answered
from tests.plugins.files.batch_bench import BatchBench, line


@pytest.fixture
def bench(service: Service) -> BatchBench:
    return BatchBench(service.bench.settings, service.bench.raw, service.bench.bell)


def begin(service: Service, content: bytes) -> str:
    file = service.http.post("/v1/files", files={"file": ("in.jsonl", content)}, data={"purpose": "batch"}).json()
    body = {"input_file_id": file["id"], "endpoint": "/v1/answers", "completion_window": "24h"}
    return str(service.http.post("/v1/batches", json=body).json()["id"])


def output(service: Service, batch: str, after: int = 0) -> list[bytes]:
    reply = service.http.get(f"/v1/batches/{batch}/output", params={"after": after})
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/x-ndjson")
    return reply.content.splitlines()


def test_lines_come_in_order_once_and_as_they_are_in_the_files(service: Service, bench: BatchBench) -> None:
    core = bench.core("a/0")
    content = b"{bad\n" + b"".join(line(f"c{n}", options={"top_k": 1 + n % 2}) + b"\n" * (n % 3) for n in range(700))
    batch = begin(service, content)
    assert output(service, batch) == []
    bench.steps()
    bench.feed()
    read, states = output(service, batch), [0]
    assert [orjson.loads(each)["error"]["code"] for each in read] == ["invalid_input"]
    while (claim := core.claim([VERSION], linger=False)) is not None:
        for found in reversed(answered(claim)):  # the later slices of a claim have their results first
            core.commit(claim.lease, [found])
            read += output(service, batch, orjson.loads(read[-1])["line"])
            states.append(len(read))
        bench.feed()
    assert len(set(states)) > 4
    bench.steps()
    done = service.http.get(f"/v1/batches/{batch}").json()
    files = [service.http.get(f"/v1/files/{done[name]}/content") for name in ("output_file_id", "error_file_id")]
    wanted = sorted((each for file in files for each in file.content.splitlines()), key=number)
    assert [number(each) for each in wanted] == [1, *(2 + n + sum(k % 3 for k in range(n)) for n in range(700))]
    assert read == wanted == output(service, batch)
    assert output(service, batch, number(wanted[600])) == wanted[601:]
    assert output(service, batch, number(wanted[-1])) == []


def number(text: bytes) -> int:
    return int(itemgetter("line")(orjson.loads(text)))


def test_line_without_an_answer_waits_for_the_end_that_says_why(service: Service, bench: BatchBench) -> None:
    core, batch = bench.core("a/0"), begin(service, line("a") + line("b", options={"top_k": 2}) + line("c"))
    bench.steps()
    one, two = bench.batch(batch).jobs
    bench.cancel(two)
    bench.answer(core)
    assert [number(each) for each in output(service, batch)] == [1]
    assert bench.drop(one, 2) == 2
    assert output(service, batch) == []  # what is dropped may be in the files by now
    bench.steps()
    assert [orjson.loads(each)["error"]["code"] for each in output(service, batch)] == [
        *("results_dropped", "canceled", "results_dropped")
    ]


def test_output_is_its_owners_and_gone_with_its_files(service: Service, bench: BatchBench) -> None:
    core, batch = bench.core("a/0"), begin(service, line("a"))
    bench.steps()
    bench.answer(core)
    bench.steps()
    assert service.http.get(f"/v1/batches/{batch}/output?after=-1").status_code == 422
    assert service.http.get(f"/v1/batches/batch_{'0' * 26}/output").status_code == 404
    service.http.delete(f"/v1/files/{bench.batch(batch).output_file_id}")
    gone = service.http.get(f"/v1/batches/{batch}/output")
    assert (gone.status_code, gone.json()["code"]) == (404, "not_found")
