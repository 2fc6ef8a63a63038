"""The frame of the console: sign-in, navigation, keyboard, themes, what a page may load."""

from collections.abc import Callable

from playwright.sync_api import BrowserContext, Page, expect

from tests.api.conftest import Service
from tests.browser.conftest import Watched, sign_in


def test_pages_lead_to_each_other(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/console")
    expect(page).to_have_url(f"{service.url}/console/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    page.get_by_role("link", name="Models").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Models")
    expect(page.get_by_role("link", name="Models")).to_have_attribute("aria-current", "page")


def test_keys_of_the_keyboard_open_pages(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/console/")
    page.keyboard.press("g")
    page.keyboard.press("m")
    page.wait_for_url("**/console/models")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_dark_mode_follows_the_system_and_the_switch(context: BrowserContext, page: Page, service: Service) -> None:
    def ground() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    page.emulate_media(color_scheme="dark")
    page.goto(f"{service.url}/console/")
    dark = ground()
    page.get_by_role("button", name="Theme: system").click()
    assert ground() != dark
    page.reload()
    assert ground() != dark
    page.get_by_role("button", name="Theme: light").click()
    assert ground() == dark


def test_no_page_is_wider_than_a_phone(page: Page, service: Service) -> None:
    page.set_viewport_size({"width": 420, "height": 900})
    for path in ("", "models", "ask", "jobs", "files", "batches", "webhooks"):
        page.goto(f"{service.url}/console/{path}")
        assert page.evaluate("document.documentElement.scrollWidth") == 420, path
        expect(page.locator("nav [aria-current]")).to_be_in_viewport()


def test_without_a_session_the_form_leads_back(page: Page, locked: Service, make_key: Callable) -> None:
    _, secret = make_key("read")
    page.goto(f"{locked.url}/console/models")
    page.get_by_label("API key").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{locked.url}/console/models")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    page.goto(f"{locked.url}/console/models")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")


def test_link_on_another_site_finds_the_session(
    page: Page, locked: Service, make_key: Callable, watched: Watched
) -> None:
    other = locked.url.replace("127.0.0.1", "localhost")
    watched.others.add(other.removeprefix("http://"))
    sign_in(page, locked, make_key("read")[1])
    page.goto(f"{other}/console/sign-in")
    page.evaluate("address => { location.href = address }", f"{locked.url}/console/models")
    expect(page.get_by_role("heading", level=1)).to_have_text("Models")
