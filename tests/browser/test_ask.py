"""The ask box, with a real model: the answer is marked where it stands, and the same call works outside the console."""

import json
import subprocess
import sys

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watched
from tests.tools.fleet import Fleet

TEXT = "The lighthouse of Port Ellery was built in 1871.\nIts last keeper was Maud Carrow."


@pytest.mark.parametrize(("sample", "candidates"), [("English", 0), ("Emoji 🛰️", 0), ("中文", 3)])
def test_answer_is_marked_in_its_passage(page: Page, fleet: Fleet, sample: str, candidates: int) -> None:
    page.goto(f"{fleet.url}/console/ask")
    page.get_by_role("link", name=sample).click()
    expect(page.locator(".samples .is-chosen")).to_have_text(sample)
    passage = page.get_by_label("Passage", exact=True).input_value()
    page.get_by_text("Options", exact=True).click()
    page.get_by_label("Always answer").check()
    page.get_by_role("button", name="Ask").click()
    best = page.locator("mark.rank-best")
    expect(best).to_be_visible()
    assert page.locator(".outcome-text").inner_text() == best.inner_text()
    assert page.locator(".passage").text_content() == passage
    # Beside an answer that leaves the others nothing there is no table.
    expect(page.locator("table.candidates tbody tr")).to_have_count(candidates)


def test_same_question_can_be_asked_with_curl_and_python(page: Page, fleet: Fleet) -> None:
    page.goto(f"{fleet.url}/console/ask?sample=english")
    page.get_by_label("Question", exact=True).press("Control+Enter")
    answer = page.locator(".outcome-text")
    expect(answer).to_be_visible()
    curl, python = (page.locator(".snippet code").nth(place).text_content() or "" for place in (0, 1))
    done = subprocess.run(["bash", "-c", curl], capture_output=True, check=True)
    assert json.loads(done.stdout)["answer"]["text"] == answer.inner_text()
    done = subprocess.run([sys.executable, "-c", python], capture_output=True, check=True)
    assert answer.inner_text() in done.stdout.decode()


def test_no_old_answer_stands_where_none_came(page: Page, fleet: Fleet, watched: Watched) -> None:
    watched.expected += ["ERR_INTERNET_DISCONNECTED", "htmx:error"]
    page.goto(f"{fleet.url}/console/ask?sample=english")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator(".outcome-text")).to_be_visible()
    page.context.set_offline(True)
    page.get_by_label("Question", exact=True).fill("Which strait?")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("alert")).to_have_text("This computer is not connected. Try again when it is.")
    expect(page.locator(".outcome-text")).to_have_count(0)
