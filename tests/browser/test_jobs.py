"""Jobs in the console: found, followed, canceled, retried; passages hidden until asked for; nothing sent is markup."""

import re
from collections.abc import Callable
from ipaddress import ip_network

import pytest
from playwright.sync_api import Dialog, Page, expect
from pydantic import SecretStr

from corelane.settings import Settings
from corelane.store import keys
from corelane.store.dispatch import Claim, SliceResults
from tests.api.conftest import Service
from tests.browser.conftest import Watched, sign_in
from tests.corelane.store_bench import answer_all, answered, claimed

SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

#: What nobody may take for markup: it would make an element, run, or ask another host.
MARKUP = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script><b>bold</b>"


def some_fail(claim: Claim, which: Callable[[int], bool], detail: str = "too long") -> list[SliceResults]:
    """Answer a claim's items, but fail some."""
    error = {"status": "failed", "error": {"code": "invalid_item", "detail": detail}}
    return [
        SliceResults(
            slice_.ref,
            [row | error if which(row["index"]) else row for row in slice_.results],
        )
        for slice_ in answered(claim)
    ]


def submit(service: Service, count: int, **parts: object) -> str:
    items = [{"question": "Who wrote it?", "context": f"Ada wrote number {n}."} for n in range(count)]
    return str(service.http.post("/v1/jobs", json={"items": items, **parts}).json()["id"])


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Let jobs have webhooks, to this host."""
    changes = {"webhook_secret": SecretStr(SECRET), "webhook_allowed_networks": (ip_network("127.0.0.0/8"),)}
    return settings.model_copy(update=changes)


def fact(service: Service, job: str, field: str) -> str:
    """Read a field of a job; the bench cannot where Playwright runs its loop."""
    return str(service.bench.raw.hget(keys.job(job), field))


def test_running_job_is_followed_to_its_end(page: Page, service: Service) -> None:
    core = service.bench.core("a/0")
    job = submit(service, 300)
    page.goto(f"{service.url}/console/jobs/{job}")
    head = page.locator("#job-head")
    expect(head.locator(".badge").first).to_have_text("queued")
    expect(page.get_by_text("Nothing is answered from item 0 on yet")).to_be_visible()
    claim = claimed(core)
    expect(head.locator(".badge").first).to_have_text("running")
    core.commit(claim.lease, some_fail(claim, lambda n: n == 1))
    expect(head.locator(".head-line")).to_contain_text("1 failed")
    expect(page.locator("#results tbody tr")).not_to_have_count(0)
    answer_all(core)
    expect(head.locator(".badge").first).to_have_text("succeeded")
    expect(head.locator(".head-line")).to_contain_text("300 of 300")
    expect(page.get_by_role("button", name="Retry 1 item")).to_be_visible()


def test_list_shows_how_a_running_job_goes_on(page: Page, service: Service) -> None:
    core = service.bench.core("a/0")
    job = submit(service, 2)
    page.goto(f"{service.url}/console/jobs")
    row = page.locator(f"#{job}")
    expect(row).to_contain_text("queued")
    answer_all(core)
    expect(row).to_contain_text("succeeded")
    submit(service, 1)
    page.get_by_role("link", name="Show them").click()
    expect(page.locator("table.jobs tbody tr")).to_have_count(2)


def test_one_job_among_many_is_found_by_its_name(page: Page, service: Service) -> None:
    for name in ("needle", *(f"hay-{n}" for n in range(30))):
        service.http.put(f"/v1/jobs/{name}", json={"question": "Who?", "context": "Ada."}).raise_for_status()
    page.goto(f"{service.url}/console/jobs")
    expect(page.get_by_role("link", name="All 31")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("needle")
    page.keyboard.press("Enter")
    expect(page.locator("table.jobs tbody tr")).to_have_count(1)
    assert page.url.endswith("/console/jobs?q=needle")
    expect(page.locator("table.jobs")).to_contain_text("needle")


def test_cancel_asks_first(page: Page, service: Service) -> None:
    job = submit(service, 3)
    page.goto(f"{service.url}/console/jobs/{job}")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Leave it").click()
    assert fact(service, job, "status") == "queued"
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("status").first).to_contain_text("Canceled")
    assert fact(service, job, "status") == "canceled"


def test_what_failed_is_retried_as_a_new_job(page: Page, service: Service) -> None:
    core = service.bench.core("a/0")
    job = submit(service, 4)
    claim = claimed(core)
    core.commit(claim.lease, some_fail(claim, lambda n: n > 1))
    page.goto(f"{service.url}/console/jobs/{job}?only=failed")
    expect(page.locator("#results tbody tr:not(.revealed)")).to_have_count(2)
    page.get_by_role("button", name="Retry 2 items").click()
    expect(page.get_by_role("status").first).to_contain_text("Retried")
    expect(page.get_by_role("link", name=job)).to_be_visible()
    expect(page).not_to_have_url(re.compile(job))
    assert fact(service, page.url.rpartition("/")[2].partition("?")[0], "retry_of") == job


def test_nothing_that_was_sent_is_markup(page: Page, service: Service, watched: Watched) -> None:
    watched.expected.append("422")
    page.on("dialog", Dialog.dismiss)
    body = {
        "items": [{"id": MARKUP[:256], "question": MARKUP, "context": f"before {MARKUP} after"}],
        "metadata": {MARKUP[:64]: MARKUP},
        "webhook": {"url": "http://127.0.0.1:9/?<b>bold</b>"},
    }
    job = service.http.put("/v1/jobs/odd-one", json=body).json()["id"]
    core = service.bench.core("a/0")
    claim = claimed(core)
    core.commit(claim.lease, some_fail(claim, lambda n: True, f"wrong: {MARKUP}"))
    [delivery] = service.http.get(f"/v1/jobs/{job}/deliveries").json()["data"]
    file = service.http.post(
        "/v1/files", data={"purpose": "batch"}, files={"file": (f"{MARKUP.replace('/', '-')}.jsonl", b"{}\n")}
    ).json()

    def stays_text(address: str, *texts: str) -> None:
        page.goto(f"{service.url}/console/{address}")
        for text in texts:
            expect(page.get_by_text(text).first).to_be_visible()
        assert page.locator("main img, main script, main b:text('bold')").count() == 0
        assert page.title() != "run"

    stays_text(f"jobs/{job}", "wrong: <img", "127.0.0.1:9/?<b>")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator(".passage")).to_have_text(f"before {MARKUP} after")
    expect(page.locator(".asked")).to_have_text(MARKUP)
    assert page.locator("main img, main script").count() == 0
    stays_text(f"webhooks/{delivery['id']}", "127.0.0.1:9/?<b>")
    stays_text(f"files/{file['id']}", "<img src=x")
    stays_text("files", "<img src=x")
    page.goto(f"{service.url}/console/jobs?model=%3Cb%3Ebold%3C/b%3E&q={MARKUP.split('>')[0]}")
    expect(page.locator("[name=model]")).to_have_value("<b>bold</b>")
    assert page.locator("main img, main b").count() == 0


def test_reader_sees_no_buttons(page: Page, locked: Service, make_key: Callable, watched: Watched) -> None:
    watched.expected.append("403")
    _, secret = make_key("read", owner="team")
    _, writer = make_key("submit", "read", owner="team")
    locked.http.headers["Authorization"] = f"Bearer {writer}"
    job = submit(locked, 2)
    sign_in(page, locked, secret)
    page.goto(f"{locked.url}/console/jobs/{job}")
    expect(page.locator("#job-head .badge").first).to_have_text("queued")
    for name in ("Cancel", "Delete", re.compile("Retry")):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    status = page.evaluate("async (job) => (await fetch(`jobs/${job}/cancel`, {method: 'POST'})).status", job)
    assert status == 403
    assert fact(locked, job, "status") == "queued"
