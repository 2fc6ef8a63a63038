"""Jobs by reference: items read from S3 and https into files, once and whole; results written, whole or not at all."""

import gzip
import json
from collections.abc import Callable
from contextlib import closing
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import redis
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from corelane.domain.request_facts import NO_REQUEST
from corelane.errors import InputFailed, NothingToRetry
from corelane.plugins.files.references.carrier import Carrier
from corelane.plugins.files.references.content import MOST_MEMBERS, unpacked
from corelane.plugins.files.references.reading import InputReader
from corelane.plugins.files.references.writing import OutputWriter
from corelane.plugins.files.store.references import ReadProgress, ReferenceStore
from corelane.settings import Settings
from corelane.store.feeding import Feeder
from corelane.store.fleet import Fleet as FleetStore
from corelane.store.jobs.store import JobStore
from corelane.store.jobs.submission import Submission
from corelane.store.link.link import AsyncLink
from corelane.submitting.retries import retry
from corelane.submitting.submitter import Submitter
from tests.corelane.store_bench import VERSION, Bench, answer_all, submit_as_admitted
from tests.tools.question_jobs import QuestionRequest
from tests.tools.s3 import S3Server, put


class Fleet:
    """A keeper's loops by hand, and one core."""

    def __init__(self, settings: Settings, raw: redis.Redis, bell: str) -> None:
        self.settings = settings
        self.bench = Bench(settings, raw, bell)
        self.core = self.bench.core("a/0")
        self.feeder = Feeder(settings, bell)

    def submit(self, **body: Any) -> str:
        request = QuestionRequest.model_validate(body | {"model": VERSION})
        submission = Submission(request, items=request.items or (), input_url=request.input_url)

        async def submit(link: AsyncLink) -> str:
            return (await submit_as_admitted(link, self.settings, self.bench.bell, submission)).id

        return self.bench.with_link(submit)

    def read(
        self,
        job: str,
        part_bytes: int = 10_000,
        kind: type[ReferenceStore] = ReferenceStore,
        should_stop: Callable[[], bool] = bool,
    ) -> None:
        with closing(kind(self.settings)) as store:
            InputReader(self.settings, store, should_stop, part_bytes).read(job)

    def write(self, job: str) -> None:
        with closing(ReferenceStore(self.settings)) as store:
            OutputWriter(self.settings, store, bool).write(job)

    def carry(self) -> None:
        Carrier(self.settings, "keeper").go_round(bool)

    def answer(self, job: str) -> None:
        while self.job(job)["status"] not in ("succeeded", "failed"):
            self.feeder.feed(job)
            answer_all(self.core)

    def job(self, job: str) -> dict[str, Any]:
        return self.bench.get(job).describe().model_dump()

    def items(self) -> list[Path]:
        return sorted((self.settings.files_root / "kept" / "items").glob("*"))


@pytest.fixture
def fleet(settings: Settings, raw: redis.Redis, bell: str, s3: str, httpserver: HTTPServer) -> Fleet:
    allowed = (f"{s3}/", httpserver.url_for("/"))
    changes = {
        "input_urls": allowed,
        "output_urls": allowed,
        "reference_allowed_networks": (ip_network("127.0.0.0/8"),),
    }
    return Fleet(settings.model_copy(update=changes), raw, bell)


def lines(count: int, begin: int = 0) -> bytes:
    items = ({"id": f"i{n}", "question": "who", "context": f"ada {n}"} for n in range(begin, begin + count))
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def test_lines_in_a_bucket_become_a_job_and_its_results_an_object(fleet: Fleet, s3: str, bucket: Path) -> None:
    put(bucket / "in.ndjson", lines(500))
    job = fleet.submit(input_url=f"{s3}/in.ndjson", output_url=f"{s3}/deep/out.ndjson")
    before = fleet.job(job)
    assert (before["status"], before["counts"]["total"]) == ("queued", 0)
    assert before["input"] == {"url": f"{s3}/in.ndjson", "state": "waiting", "bytes": 0, "items": 0, "error": None}
    fleet.carry()
    read = fleet.job(job)
    assert (read["counts"]["total"], read["input"]["state"], read["input"]["items"]) == (500, "read", 500)
    fleet.answer(job)
    assert fleet.job(job)["output"]["state"] == "waiting"
    fleet.carry()
    written = (bucket / "deep" / "out.ndjson").read_bytes().splitlines()
    assert [json.loads(line)["id"] for line in written] == [f"i{n}" for n in range(500)]
    assert [json.loads(line) for line in written] == fleet.bench.results(job)
    output = fleet.job(job)["output"]
    assert (output["state"], output["attempts"], output["error"]) == ("written", 1, None)
    assert output["bytes"] == (bucket / "deep" / "out.ndjson").stat().st_size
    fleet.feeder.feed(job)
    assert fleet.items() == []
    assert not fleet.bench.raw.exists("cl:reading", "cl:writing", "cl:carrier", "cl:feeds")


@pytest.mark.parametrize("name", ["a.ndjson.gz", "a.json", "a.json.gz", "a"])
def test_every_format_gives_the_same_items(fleet: Fleet, s3: str, bucket: Path, name: str) -> None:
    plain = lines(20) if "json" not in name or "ndjson" in name else b"[" + lines(20).replace(b"\n", b",")[:-1] + b"]"
    put(bucket / name, gzip.compress(plain[:100]) + gzip.compress(plain[100:]) if ".gz" in name else plain)
    job = fleet.submit(input_url=f"{s3}/{name}")
    fleet.read(job, part_bytes=200)
    assert len(fleet.items()) > 2
    fleet.answer(job)
    assert [result["id"] for result in fleet.bench.results(job)] == [f"i{n}" for n in range(20)]


def test_first_line_may_have_the_contexts_of_all(fleet: Fleet, s3: str, bucket: Path) -> None:
    head, items = {"contexts": {"a": "ada", "b": "bob"}}, [{"question": "who", "context_id": name} for name in "bab"]
    put(bucket / "a", b"".join(json.dumps(line).encode() + b"\n" for line in (head, *items)))
    put(bucket / "a.json", json.dumps(head | {"items": items}).encode())
    for name in ("a", "a.json"):
        job = fleet.submit(input_url=f"{s3}/{name}")
        fleet.read(job)
        fleet.feeder.feed(job)
        claim = fleet.core.claim([VERSION], linger=False)
        assert claim is not None
        contexts = fleet.bench.raw.hgetall(f"cl:contexts:{{{job}}}")
        assert contexts == {"0": "ada", "1": "bob"}
        assert json.loads(fleet.bench.raw.hget(f"cl:in:{{{job}}}", "0")) == [
            [None, "who", 1],
            [None, "who", 0],
            [None, "who", 1],
        ]
        fleet.bench.cancel(job)


class Dies(BaseException):
    """Stands for the death of a keeper."""


class DyingStore(ReferenceStore):
    """Dies with its fourth note, which is taken."""

    notes = 0

    def note_input(self, job: str, before: str, after: ReadProgress, retry_s: float | None = None) -> bool:
        noted = super().note_input(job, before, after, retry_s)
        self.notes += 1
        if self.notes == 4:
            raise Dies
        return noted


@pytest.mark.parametrize("name", ["a.ndjson", "a.ndjson.gz", "a.json"])
def test_keeper_that_died_is_followed_by_one_that_reads_on(fleet: Fleet, s3: str, bucket: Path, name: str) -> None:
    head: dict[str, Any] = {"contexts": {"a": "ada", "b": "bob"}}
    items = [{"id": f"i{n}", "question": "who", "context_id": "ba"[n % 2]} for n in range(1000)]
    content = b"\n".join(json.dumps(line).encode() for line in (head, *items))
    content = json.dumps(head | {"items": items}).encode() if name.endswith("json") and "nd" not in name else content
    put(bucket / name, gzip.compress(content) if name.endswith("gz") else content)
    job = fleet.submit(input_url=f"{s3}/{name}")
    with pytest.raises(Dies):
        fleet.read(job, 2000, DyingStore)
    halfway = fleet.job(job)["input"]
    assert (halfway["state"], 0 < halfway["items"] < 1000) == ("reading", True)
    fleet.read(job, 2000)
    fleet.answer(job)
    assert [result["id"] for result in fleet.bench.results(job)] == [f"i{n}" for n in range(1000)]
    assert fleet.job(job)["counts"]["succeeded"] == 1000


def test_object_that_changes_between_two_keepers_fails_the_job(fleet: Fleet, s3: str, bucket: Path) -> None:
    put(bucket / "a", lines(1000))
    job = fleet.submit(input_url=f"{s3}/a")
    with pytest.raises(Dies):
        fleet.read(job, 2000, DyingStore)
    put(bucket / "a", lines(1000, begin=1))
    fleet.read(job, 2000)
    found = fleet.job(job)
    assert (found["status"], found["error"]["code"], found["input"]["state"]) == ("failed", "input_failed", "failed")
    assert "changed while it was read" in found["error"]["detail"]
    assert fleet.items() == []


def test_two_keepers_at_once_begin_the_job_once(fleet: Fleet, s3: str, bucket: Path) -> None:
    put(bucket / "a", lines(300))
    job = fleet.submit(input_url=f"{s3}/a")

    def other_goes_first() -> bool:
        fleet.read(job)
        return False

    fleet.read(job, should_stop=other_goes_first)
    fleet.answer(job)
    assert [result["id"] for result in fleet.bench.results(job)] == [f"i{n}" for n in range(300)]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none", None, "there is no object"),
        ("a", b"\n\n", "no items"),
        ("a.gz", b"no gzip", "not gzip"),
        ("a.gz", gzip.compress(b"x" * 1000, mtime=0)[:-9], "in the middle"),
        ("a.json", b"{", "not JSON"),
        ("a.json", b'{"a": 1}', "list of items"),
        ("a", b'{"contexts": {}, "options": {}}', "put it into the request"),
        ("a", lines(11), "more than 10 items"),
        ("a.gz", gzip.compress(b" " * 3_000_000, mtime=0), "more than 2,000,000 bytes"),
    ],
)
def test_input_that_cannot_be_read_fails_the_job_and_says_why(
    settings: Settings,
    raw: redis.Redis,
    bell: str,
    s3: str,
    bucket: Path,
    name: str,
    content: bytes,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("corelane.plugins.files.references.reading.MOST_ITEMS", 10)
    limits = {"max_input_bytes": 2_000_000, "input_urls": (f"{s3}/",)}
    fleet = Fleet(settings.model_copy(update=limits), raw, bell)
    if content is not None:
        put(bucket / name, content)
    job = fleet.submit(input_url=f"{s3}/{name}")
    fleet.read(job)
    found = fleet.job(job)
    assert (found["status"], found["error"]["code"], found["counts"]["total"]) == ("failed", "input_failed", 0)
    assert said in found["error"]["detail"]
    assert found["input"]["error"] == found["error"]["detail"]
    assert not fleet.bench.raw.exists("cl:reading")


def test_gzip_of_very_many_members_is_refused() -> None:
    many = gzip.compress(b"", mtime=0) * (MOST_MEMBERS + 1)
    with pytest.raises(InputFailed, match="more than 100,000 members"):
        list(unpacked([many]))
    assert b"".join(unpacked([gzip.compress(b"a") * 3])) == b"aaa"


def test_server_that_is_away_is_waited_for(fleet: Fleet, s3: str, bucket: Path, s3_server: S3Server) -> None:
    put(bucket / "a", lines(10))
    job = fleet.submit(input_url=f"{s3}/a", output_url=f"{s3}/out")
    s3_server.kill()
    try:
        fleet.read(job)
        found = fleet.job(job)
        assert (found["status"], found["input"]["state"]) == ("queued", "waiting")
        assert "connect" in found["input"]["error"].lower()
    finally:
        s3_server.start()
    fleet.read(job)
    assert fleet.job(job)["input"]["error"] is None
    fleet.answer(job)
    s3_server.kill()
    try:
        fleet.write(job)
        output = fleet.job(job)["output"]
        assert (output["state"], output["attempts"]) == ("writing", 1)
        assert "connect" in output["error"].lower()
        assert len(fleet.bench.results(job)) == 10
    finally:
        s3_server.start()
    assert fleet.bench.drop(job, 10) == 0
    fleet.write(job)
    output = fleet.job(job)["output"]
    assert (output["state"], output["attempts"], output["error"]) == ("written", 2, None)
    assert len((bucket / "out").read_bytes().splitlines()) == 10
    assert fleet.bench.drop(job, 10) == 10


def test_https_is_read_and_written_too_and_its_query_never_shown(
    fleet: Fleet, httpserver: HTTPServer, capsys: pytest.CaptureFixture[str]
) -> None:
    put: list[bytes] = []

    def take(request: Request) -> Response:
        put.append(request.get_data())
        return Response(status=200)

    content = lines(100)
    httpserver.expect_request("/in.ndjson", query_string="signature=secret").respond_with_data(content)
    httpserver.expect_request("/out.ndjson", query_string="signature=secret", method="PUT").respond_with_handler(take)
    urls = {f"{way}_url": httpserver.url_for(f"/{way}.ndjson?signature=secret") for way in ("input", "output")}
    urls = {name: url.replace("input", "in").replace("output", "out") for name, url in urls.items()}
    job = fleet.submit(**urls)
    fleet.carry()
    fleet.answer(job)
    fleet.carry()
    assert [json.loads(line) for line in put[0].splitlines()] == fleet.bench.results(job)
    assert len(put) == 1
    found = fleet.job(job)
    assert found["input"]["url"] == httpserver.url_for("/in.ndjson")
    assert (found["output"]["url"], found["output"]["state"]) == (httpserver.url_for("/out.ndjson"), "written")
    assert "secret" not in str(found) + capsys.readouterr().out


@pytest.mark.parametrize("has_ranges", [True, False])
def test_https_input_is_resumed_by_a_range_or_read_again(
    fleet: Fleet, httpserver: HTTPServer, has_ranges: bool
) -> None:
    content, asked = lines(1000), []

    def serve(request: Request) -> Response:
        asked.append(request.headers.get("Range"))
        start = int((asked[-1] or "bytes=0-")[6:-1]) if has_ranges else 0
        return Response(content[start:], status=206 if start else 200, headers={"ETag": '"one"'})

    httpserver.expect_request("/a").respond_with_handler(serve)
    job = fleet.submit(input_url=httpserver.url_for("/a"))
    with pytest.raises(Dies):
        fleet.read(job, 2000, DyingStore)
    fleet.read(job, 2000)
    assert (asked[0], len(asked)) == (None, 2)
    assert not has_ranges or int((asked[1] or "")[6:-1]) > 0
    fleet.answer(job)
    assert [result["id"] for result in fleet.bench.results(job)] == [f"i{n}" for n in range(1000)]


@pytest.mark.parametrize(("status", "is_final"), [(404, True), (403, True), (503, False), (429, False)])
def test_status_says_whether_it_is_tried_again(
    fleet: Fleet, httpserver: HTTPServer, status: int, is_final: bool
) -> None:
    httpserver.expect_request("/a").respond_with_data(b"no", status=status)
    job = fleet.submit(input_url=httpserver.url_for("/a"), output_url=httpserver.url_for("/a"))
    fleet.read(job)
    assert (fleet.job(job)["status"] == "failed") == is_final
    assert f"the server answered {status}" in fleet.job(job)["input"]["error"]
    fleet.bench.cancel(job)
    fleet.write(job)
    assert fleet.job(job)["output"]["state"] == ("failed" if is_final else "writing")


def test_redirect_is_followed_only_to_where_the_service_may_read(fleet: Fleet, httpserver: HTTPServer) -> None:
    httpserver.expect_request("/a").respond_with_data(lines(3))
    for name, target in (("in", "/a"), ("out", "http://localhost:1/secret?key=1"), ("loop", "/loop")):
        moved = Response(status=307, headers={"Location": target})
        httpserver.expect_request(f"/{name}").respond_with_response(moved)
    jobs = {name: fleet.submit(input_url=httpserver.url_for(f"/{name}")) for name in ("in", "out", "loop")}
    for job in jobs.values():
        fleet.read(job)
    assert fleet.job(jobs["in"])["counts"]["total"] == 3
    refused = fleet.job(jobs["out"])["error"]["detail"]
    assert "redirects to 'http://localhost:1/secret', which is not allowed" in refused
    assert "redirects too often" in fleet.job(jobs["loop"])["error"]["detail"]


def test_canceled_job_is_read_no_more_and_leaves_nothing(fleet: Fleet, s3: str, bucket: Path) -> None:
    put(bucket / "a", lines(1000))
    job = fleet.submit(input_url=f"{s3}/a")
    with pytest.raises(Dies):
        fleet.read(job, 2000, DyingStore)
    assert fleet.items()
    fleet.bench.cancel(job)
    fleet.read(job)
    assert fleet.items() == []
    assert not fleet.bench.raw.exists("cl:reading")
    assert fleet.job(job)["input"]["state"] == "failed"


def test_failed_input_is_read_again_by_a_retry(fleet: Fleet, s3: str, bucket: Path) -> None:
    job = fleet.submit(input_url=f"{s3}/a")
    fleet.read(job)
    assert fleet.job(job)["status"] == "failed"
    put(bucket / "a", lines(5) + b"bad\n")

    def retried(job: str) -> str:
        record = fleet.bench.get(job)

        async def run(link: AsyncLink) -> str:
            store = JobStore(link, fleet.settings, fleet.bench.bell)
            submitter = Submitter(store, FleetStore(link), fleet.settings)
            return (await retry(submitter, store, fleet.settings, record, NO_REQUEST)).record.id

        return fleet.bench.with_link(run)

    second = retried(job)
    fleet.read(second)
    fleet.answer(second)
    assert (fleet.job(second)["retry_of"], fleet.job(second)["counts"]["succeeded"]) == (job, 5)
    with pytest.raises(NothingToRetry, match="would fail again"):
        retried(second)


def test_webhook_hears_once_that_the_output_is_written(fleet: Fleet, s3: str) -> None:
    webhook = {"url": "https://example.com/hook", "events": ["job.completed", "job.output"]}
    job = fleet.submit(items=[{"question": "who", "context": "ada"}], output_url=f"{s3}/out", webhook=webhook)
    answer_all(fleet.core)
    raw = fleet.bench.raw
    assert [raw.hget(f"cl:delivery:{each}", "event") for each in raw.zrange(f"cl:deliveries:{job}", 0, -1)] == [
        "job.completed"
    ]
    for _ in range(2):
        fleet.write(job)
    told = [each for each in raw.zrange(f"cl:deliveries:{job}", 0, -1) if each.endswith("_output")]
    assert len(told) == 1
    facts = json.loads(raw.hget(f"cl:delivery:{told[0]}", "record"))
    assert json.loads(facts["output"])["state"] == "written"
