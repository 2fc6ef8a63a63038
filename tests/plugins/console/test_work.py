"""The pages about work, over HTTP: what they show, what they change, and for whom."""

import csv
import re
from html import unescape

import orjson
import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from corelane.domain.jobs import Webhook
from corelane.plugins.console.pages.downloads import inert
from corelane.settings import Settings
from corelane.store import keys
from tests.api.office import ANN, OPS, READER, Office
from tests.corelane.store_bench import Bench, LoneCore, answer_all, answered, claimed
from tests.plugins.console.conftest import OWN, text_of
from tests.tools.deliveries import schedule

LINE = b'{"custom_id":"1","method":"POST","url":"/v1/answers","body":{"question":"q","context":"c"}}\n'


@pytest.mark.parametrize("page", ["ask", "jobs", "files", "batches", "webhooks"])
def test_every_page_has_a_friendly_empty_state(console: TestClient, page: str) -> None:
    found = console.get(f"/console/{page}")
    assert found.status_code == 200
    assert 'class="empty-title"' in found.text


def test_counts_stand_above_the_list(console: TestClient, bench: Bench, core: LoneCore) -> None:
    bench.submit(1)
    claim = claimed(core)
    core.commit(claim.lease, answered(claim, "failed"))
    bench.cancel(bench.submit(1))
    bench.submit(1)
    text = text_of(console.get("/console/jobs").text)
    assert "All 3 Open 1 Succeeded 0 With failed items 1 Failed 1 Canceled 1 Expired 0" in text


def test_filter_that_makes_no_sense_is_told_in_words(console: TestClient) -> None:
    found = console.get("/console/jobs?status=done&created_after=yesterday")
    assert found.status_code == 422
    assert "it must be" in text_of(found.text)
    found = console.get("/console/jobs?after=job_1")
    assert (found.status_code, "not whole" in found.text) == (422, True)


def test_address_of_a_list_keeps_only_what_was_asked(console: TestClient, bench: Bench) -> None:
    for _ in range(30):
        bench.submit(1)
    found = console.get("/console/jobs?q=&name=&status=queued&model=tiny")
    [older] = re.findall(r'rel="next" href="([^"]*)"', found.text)
    assert re.fullmatch(r"jobs\?status=queued&amp;model=tiny&amp;after=job_\w+", older)
    assert console.get(f"/console/{unescape(older)}").text.count('class="badge is-queued"') == 5


def test_results_of_one_state_are_looked_for_in_bounded_steps(
    console: TestClient, bench: Bench, core: LoneCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corelane.plugins.console.pages.result_walk.TRIP_RESULTS", 100)
    monkeypatch.setattr("corelane.plugins.console.pages.result_walk.MOST_LOOKED", 200)
    job = bench.submit(500)
    while bench.waiting():
        claim = claimed(core)
        core.commit(
            claim.lease,
            [
                type(each)(
                    each.ref, [row | ({"status": "failed"} if row["index"] == 450 else {}) for row in each.results]
                )
                for each in answered(claim)
            ],
        )
    found = console.get(f"/console/jobs/{job}?only=failed")
    assert "None of the items looked at is failed" in text_of(found.text)
    found = console.get(f"/console/jobs/{job}?only=failed&after=200")
    assert f"jobs/{job}?after=400&amp;only=failed" in found.text
    assert "450" in text_of(console.get(f"/console/jobs/{job}?only=failed&after=400").text)


def test_text_of_an_item_is_shown_as_long_as_it_is_kept(console: TestClient, bench: Bench, core: LoneCore) -> None:
    whole = bench.submit(2)
    answer_all(core)
    broken = bench.submit(200)
    while bench.waiting():
        claim = claimed(core)
        core.commit(claim.lease, answered(claim, "failed"))
    assert "who" in text_of(console.get(f"/console/jobs/{broken}/items/199").text)
    assert "who" not in text_of(console.get(f"/console/jobs/{broken}").text).split()
    assert "not kept" in console.get(f"/console/jobs/{whole}/items/0").text
    assert console.get(f"/console/jobs/{whole}/items/2").status_code == 404


def test_text_of_an_item_sent_as_a_line_is_read_from_its_file(console: TestClient) -> None:
    lines = b"".join(b'{"question": "Who is %d?", "context": "It is %d."}\n' % (n, n) for n in range(3))
    job = console.post("/v1/jobs", content=lines, headers={"Content-Type": "application/x-ndjson"}).json()["id"]
    found = text_of(console.get(f"/console/jobs/{job}/items/2").text)
    assert found == "Who is 2? It is 2."


def test_list_is_exported(console: TestClient, bench: Bench) -> None:
    jobs = [bench.submit(1) for _ in range(250)]
    sent = console.get("/console/jobs/export?status=queued")
    assert sent.headers["content-disposition"] == 'attachment; filename="jobs.csv"'
    head, *rows = csv.reader(sent.text.splitlines())
    assert head[:4] == ["id", "name", "status", "model"]
    assert [row[0] for row in rows] == jobs[::-1]
    lines = console.get("/console/jobs/export?form=jsonl").text.splitlines()
    assert [orjson.loads(line)["id"] for line in lines] == jobs[::-1]


def test_results_are_downloaded_in_both_forms_by_their_owner(office: Office) -> None:
    job = office.bench.submit(600, owner=ANN)
    answer_all(office.bench.core("a/0"))
    lines = office.call(ANN, "GET", f"/console/jobs/{job}/results.jsonl")
    assert [orjson.loads(line)["index"] for line in lines.text.splitlines()] == list(range(600))
    table = office.call(ANN, "GET", f"/console/jobs/{job}/results.csv")
    assert table.headers["content-disposition"] == f'attachment; filename="{job}.csv"'
    rows = list(csv.DictReader(table.text.splitlines()))
    assert [row["index"] for row in rows] == [str(index) for index in range(600)]
    for form in ("jsonl", "csv"):
        assert office.call(READER, "GET", f"/console/jobs/{job}/results.{form}").status_code == 404


def test_shared_context_is_shown_with_its_items(console: TestClient, bench: Bench) -> None:
    body = {"contexts": {"c": "Ada wrote it."}, "items": [{"question": "Who?", "context_id": "c"}]}
    job = console.post("/v1/jobs", json=body).json()["id"]
    assert text_of(console.get(f"/console/jobs/{job}/items/0").text) == "Who? Ada wrote it."
    bench.raw.delete(keys.shared_texts(job))
    assert "not kept" in console.get(f"/console/jobs/{job}/items/0").text


def test_file_is_uploaded_answered_and_deleted(console: TestClient, bench: Bench) -> None:
    sent = console.post("/console/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", LINE)})
    assert sent.status_code == 303
    page = sent.headers["location"].partition("?")[0]
    file = page.rpartition("/")[2]
    assert "a.jsonl" in console.get(f"/console/files/{file}").text
    assert console.get(f"/console/files/{file}/content").content == LINE
    started = console.post("/console/batches", data={"input_file_id": file, "completion_window": "1h"})
    batch = started.headers["location"].partition("?")[0].rpartition("/")[2]
    assert batch in console.get("/console/batches").text
    assert "validating" in console.get(f"/console/batches/{batch}").text
    assert console.post(f"/console/batches/{batch}/cancel").status_code == 303
    assert "cancel" in console.get(f"/console/batches/{batch}").text.lower()
    delivery = schedule(bench.settings, "batch.cancelled", batch, "public", "https://a.test/", {})
    assert f'href="webhooks/{delivery}"' in console.get(f"/console/webhooks?find={batch}", follow_redirects=True).text
    assert console.post(f"/console/files/{file}/delete").status_code == 303
    assert console.get(f"/console/files/{file}").status_code == 404
    wrong = console.post("/console/batches", data={"input_file_id": file, "completion_window": "soon"})
    assert (wrong.status_code, "as in 24h" in wrong.text) == (422, True)


def test_uploaded_file_may_be_larger_than_other_bodies(settings: Settings, core: LoneCore) -> None:
    small = settings.model_copy(update={"max_body_bytes": 1024})
    with TestClient(create_app(small), headers=OWN, follow_redirects=False) as console:
        sent = console.post("/console/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", LINE * 100)})
        assert sent.status_code == 303
        assert console.post("/console/ask", data={"item.question": "q", "item.context": "c" * 2000}).status_code == 413


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=b"])
def test_form_is_short(kind: str, console: TestClient) -> None:
    for path, most in (("sign-in", 4096), ("models/load", 4096), ("ask", 65_536)):
        for size in (most, most + 1):
            for content in (b"&" * size, iter([b"&" * size])):
                found = console.post(f"/console/{path}", content=content, headers={"Content-Type": kind})
                assert (found.status_code == 413) == (size > most), (path, size)
        assert "forms are for short values" in found.text


def test_scopes_are_those_of_the_api(office: Office) -> None:
    job = office.submit(ANN)
    page = office.call(READER, "GET", "/console/jobs")
    assert (page.status_code, 'data-key="a"' in page.text) == (200, False)
    assert 'data-key="a"' in office.call(OPS, "GET", "/console/jobs").text
    changes = (
        f"jobs/{job}/cancel",
        f"jobs/{job}/retry",
        f"jobs/{job}/delete",
        "files",
        "batches",
        "ask",
    )
    for place in (*changes, "webhooks/evt_0abc_completed/redeliver"):
        assert office.call(READER, "POST", f"/console/{place}", data={"x": "y"}).status_code == 403, place
    assert office.call(READER, "GET", f"/console/jobs/{job}").status_code == 404
    assert office.call(READER, "GET", "/console/jobs?owner=ann").status_code == 403
    assert job not in office.call(READER, "GET", "/console/jobs/export?owner=reader").text
    assert office.call(READER, "GET", "/console/jobs/export?owner=*").status_code == 403
    assert job in office.call(OPS, "GET", "/console/jobs?owner=*").text
    assert office.call(OPS, "GET", f"/console/jobs/{job}").status_code == 200


def test_delivery_that_was_given_up_is_posted_again(console: TestClient, bench: Bench, core: LoneCore) -> None:
    job = bench.submit(1, webhook=Webhook(url="https://receiver.example/?a=<b>"))
    answer_all(core)
    [delivery] = bench.raw.zrange(keys.deliveries(job), 0, -1)
    page = console.get("/console/webhooks").text
    assert "Next in line" in page
    assert "receiver.example/?a=&lt;b&gt;" in page
    at_ms = 4_000_000_000_000
    bench.raw.zadd(keys.CIRCUITS, {"receiver.example": at_ms})
    bench.raw.zadd(keys.DUE_HOSTS, {"receiver.example": at_ms})
    page = console.get("/console/webhooks").text
    assert "receiver.example fails and is left alone; one of its events is tried 2096-10-02" in text_of(page)
    assert page.count("2096-10-02T07:06:40.000Z</time>") == 2  # of the host, and of what waits for it
    bench.raw.hset(keys.delivery(delivery), "state", "dead")
    bench.raw.zadd(keys.DEAD, {delivery: 1})
    page = console.get("/console/webhooks").text
    assert f'action="webhooks/{delivery}/redeliver"' in page
    reply = console.post(f"/console/webhooks/{delivery}/redeliver")
    assert (reply.status_code, delivery in reply.headers["location"]) == (303, True)
    assert bench.raw.hget(keys.delivery(delivery), "state") == "pending"
    for looked_for, leads_to in ((delivery, f"webhooks/{delivery}"), (job, f"jobs/{job}")):
        reply = console.get("/console/webhooks", params={"find": f" {looked_for} "})
        assert reply.headers["location"] == f"../console/{leads_to}"


def test_long_passage_is_asked_about(console: TestClient, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corelane.plugins.console.pages.ask.WAIT_S", 0.1)
    reply = console.post("/console/ask", data={"item.question": "Who?", "item.context": "Ada wrote it.\r\n" * 3000})
    assert reply.status_code == 200
    [job] = bench.raw.zrange(keys.owner_jobs("public"), 0, -1)
    assert "Not done yet" in reply.text
    shown = console.get(f"/console/jobs/{job}/items/0").text
    assert "Ada wrote it.\nAda wrote it." in shown


def test_no_cell_of_an_export_is_a_formula() -> None:
    assert [inert(text) for text in ("=1+1", "+1", "-1", "@a", "a=1", "")] == ["'=1+1", "'+1", "'-1", "'@a", "a=1", ""]
