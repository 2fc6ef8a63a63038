"""The console in a real browser: Debian's chromium, driven by Playwright. What a test does with the store's bench runs
in a thread of its own (``aside``).

A page of these tests fails its test if anything went wrong in it: an error in its console, a script that threw, a
request to another host. Most tests use the API alone with cores that do what the test says (``service``, ``locked``);
those that need a model use the fleet that other tests share.
"""

import json
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
import redis
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from corelane.domain.api_keys import Scope
from corelane.settings import Settings
from corelane.store.api_keys import ApiKeyStore
from corelane.store.fleet import Announcer
from corelane.store.link.blocking import Link
from tests.api.conftest import Service, run_service
from tests.corelane.store_bench import VERSION
from tests.plugins.console.conftest import SUMMARY

#: Where Debian puts it; another one by its path.
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)

#: Nothing on a page takes longer on a busy machine, in milliseconds.
TIMEOUT_MS = 20_000

expect.set_options(timeout=TIMEOUT_MS)

HERE = Path(__file__).parent

Returned = TypeVar("Returned")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip these tests where there is no chromium, unless they are what was asked for."""
    if CHROMIUM or os.environ.get("CORELANE_TEST_BROWSER") == "required":
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip("there is no chromium: make chromium"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show of a failed test what stood on its page: all that a reader of the page would be told."""
    report = yield
    page = getattr(item, "funcargs", {}).get("page")
    if report.when == "call" and report.failed and page is not None and HERE in item.path.parents:
        try:
            seen = f"{page.url}\n{page.locator('body').aria_snapshot(timeout=5000)}"
        except PlaywrightError as error:
            seen = f"{page.url}\n{error}"
        report.sections.append(("the page at the end", seen))
    return report


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start chromium. For a module: while Playwright runs, its thread can run no asyncio of other tests."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Watched:
    """What went wrong on the pages of a test, and what a test expects to."""

    host: str = ""
    wrongs: list[str] = field(default_factory=list)
    #: Parts of messages that a test provokes, as "403".
    expected: list[str] = field(default_factory=list)
    #: Hosts of other sites that a test visits.
    others: set[str] = field(default_factory=set)

    def watch(self, page: Page) -> None:
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.wrongs.append(f"script: {error}"))
        page.on("request", self._asked)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(part in message.text for part in self.expected):
            self.wrongs.append(f"console: {message.text}")

    def _asked(self, request: Request) -> None:
        address = urlsplit(request.url)
        self.host = self.host or address.netloc
        if address.scheme not in ("blob", "data") and address.netloc not in {self.host, *self.others}:
            self.wrongs.append(f"request to outside: {request.url}")


@pytest.fixture
def watched() -> Iterator[Watched]:
    """Yield the watch over this test's pages; nothing may go wrong on them."""
    watched = Watched()
    yield watched
    assert not watched.wrongs


@pytest.fixture
def context(browser: Browser, watched: Watched) -> Iterator[BrowserContext]:
    """Open a browser of its own: no cookies, no storage."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB", timezone_id="Europe/Berlin")
    context.set_default_timeout(TIMEOUT_MS)
    context.on("page", watched.watch)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """Open a page."""
    return context.new_page()


#: What a core of these tests says of itself.
BEAT = {
    "state": "idle",
    "pid": "4711",
    "node": "core-0@test",
    "queue": "corelane.a/0",
    "cpus": "0",
    "busy": "0.25",
    "items": "1234",
    "versions": f'["{VERSION}"]',
    "reasons": "[]",
    "memory": str(350 << 20),
    "models": json.dumps([{"version": VERSION, "state": "ready", "bytes": 34_000_000, "buckets": ["4x32"]}]),
}


@pytest.fixture
def service(settings: Settings, raw: redis.Redis, bell: str, browser: Browser) -> Iterator[Service]:
    """Run the API alone, without keys, and one core that does what the test says."""
    yield from run_for_browser(settings, raw, bell, browser)


@pytest.fixture
def locked(settings: Settings, raw: redis.Redis, bell: str, browser: Browser) -> Iterator[Service]:
    """Run the same where the API asks for keys."""
    yield from run_for_browser(settings.model_copy(update={"auth": "required"}), raw, bell, browser)


def run_for_browser(settings: Settings, raw: redis.Redis, bell: str, browser: Browser) -> Iterator[Service]:
    """Run the API; it stops once no page has a stream open, so that none sees its end as an error."""
    for service in run_service(settings, raw, bell):
        say(service)
        yield service
        for context in browser.contexts:
            context.close()


def aside(call: Callable[..., Returned], *args: Any, **options: Any) -> Returned:
    """Call a function in a thread of its own: those that run asyncio cannot be called beside Playwright."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call, *args, **options).result()


def say(service: Service, core: str = "a/0", **beat: str) -> None:
    """Send a core's heartbeat, with some of it changed; announce its model."""
    bench = service.bench
    Announcer(bench.settings, core).beat(BEAT | beat, [VERSION], [], None)
    bench.raw.hset("cl:models", VERSION, json.dumps(SUMMARY | {"bytes": 34_000_000}))


@pytest.fixture
def api_keys(settings: Settings, raw: redis.Redis) -> Iterator[ApiKeyStore]:
    """Yield the operator's side of API keys."""
    link = Link(settings.redis_url)
    yield ApiKeyStore(link)
    link.close()


@pytest.fixture
def make_key(api_keys: ApiKeyStore) -> Callable[..., tuple[str, str]]:
    """Return a function that makes an API key: it returns the key's id and the key."""

    def make(*scopes: str, name: str = "tester", owner: str | None = None) -> tuple[str, str]:
        key, secret = api_keys.create(name, [Scope(scope) for scope in scopes], owner)
        return key.id, secret

    return make


def sign_in(page: Page, service: Service, secret: str) -> None:
    """Sign in on the console."""
    page.goto(f"{service.url}/console/sign-in")
    page.get_by_label("API key").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/console/")
