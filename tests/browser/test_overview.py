"""The overview in a browser: live parts, charts, what a read key sees, streams of hidden pages."""

import time
from collections.abc import Callable

import orjson
from playwright.sync_api import Page, expect

from corelane.plugins.console import keys
from corelane.plugins.console.history import HistoryPoint
from tests.api.conftest import Service
from tests.browser.conftest import Watched, aside, say, sign_in
from tests.tools.waiting import eventually


def test_overview_follows_what_happens(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/console/")
    expect(page.locator("#now")).to_contain_text("Nothing waits")
    aside(service.bench.submit, 3)
    expect(page.locator("#now")).to_contain_text("3 items wait")
    expect(page.locator("#models")).to_contain_text("tiny@1")
    say(service, state="busy", items="1240")
    expect(page.locator("#cores .badge.is-busy")).to_have_count(1)


def test_charts_show_history_with_its_marks(page: Page, service: Service) -> None:
    raw, now = service.bench.raw, int(time.time() * 1000)
    point = dict.fromkeys(HistoryPoint.model_fields.keys() - {"at"}, 0) | {"p50_s": 0.02, "p95_s": 0.2, "busy": 0.5}
    for age_s in (30, 20, 10):
        raw.xadd(keys.HISTORY, {"point": orjson.dumps(point | {"items_s": age_s})}, id=f"{now - age_s * 1000}-0")
    raw.xadd("cl:marks", {"kind": "deploy", "text": "<b>2.0</b>"}, id=f"{now - 15_000}-0")
    page.goto(f"{service.url}/console/")
    expect(page.locator("#charts canvas")).to_have_count(4)
    expect(page.locator("[data-chart=throughput] .u-legend")).to_contain_text("answered10")
    page.get_by_role("button", name="6 h").click()
    expect(page.get_by_role("button", name="6 h")).to_have_attribute("aria-pressed", "true")
    page.get_by_text("What was changed").click()
    expect(page.locator("#marks li", has_text="deploy: <b>2.0</b>")).to_be_visible()


def test_hidden_page_holds_no_stream(page: Page, service: Service) -> None:
    def streams() -> float:
        metrics = service.http.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in metrics if line.startswith("corelane_event_streams"))

    page.goto(f"{service.url}/console/")
    expect(page.locator("#live")).to_have_text("live")
    eventually(lambda: streams() == 1)
    hide = "value => { Object.defineProperty(document, 'hidden', {value, configurable: true});"
    page.evaluate(hide + " document.dispatchEvent(new Event('visibilitychange')) }", True)
    expect(page.locator("#live")).to_have_text("paused")
    eventually(lambda: streams() == 0)
    page.evaluate(hide + " document.dispatchEvent(new Event('visibilitychange')) }", False)
    expect(page.locator("#live")).to_have_text("live")


def test_read_key_sees_no_buttons_and_is_refused(
    page: Page, locked: Service, make_key: Callable, watched: Watched
) -> None:
    sign_in(page, locked, make_key("read")[1])
    page.goto(f"{locked.url}/console/models")
    expect(page.get_by_role("heading", name="tiny@1")).to_be_visible()
    for name in ("Load", "Reload", "Unload", "Reload everywhere", "Unload everywhere", "Move the alias"):
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    watched.expected.append("403")
    status = page.evaluate(
        "fetch('models/unload', {method: 'POST', body: new URLSearchParams({version: 'tiny@1'})}).then(r => r.status)"
    )
    assert status == 403


def test_admin_pauses_an_owner_and_resumes_it(
    page: Page, locked: Service, make_key: Callable[..., tuple[str, str]]
) -> None:
    _, ops = make_key("submit", "read", "admin", name="ops", owner="ops")
    _, ann = make_key("submit", "read", name="ann", owner="ann")
    question = {"question": "Who wrote it?", "context": "Ada wrote it."}
    locked.http.post("/v1/jobs", headers={"Authorization": f"Bearer {ann}"}, json=question).raise_for_status()
    sign_in(page, locked, ops)
    expect(page.locator("#owners")).to_contain_text("ann")
    page.get_by_role("button", name="Pause owner ann").click()
    expect(page.locator(".said")).to_contain_text("Paused.")
    expect(page.locator("#issues dt", has_text="owner ann")).to_be_visible()
    expect(page.locator("#owners .badge.is-paused")).to_be_visible()
    page.locator("#issues").get_by_role("button", name="Resume owner ann").click()
    expect(page.locator(".said")).to_contain_text("Resumed.")
    expect(page.locator("#issues dt", has_text="owner ann")).to_have_count(0)
