"""The models page on a running fleet: a version is loaded and unloaded from the browser."""

import re
import shutil

import pytest
from playwright.sync_api import Page, expect

from corelane.artifacts.manifest import Artifact
from tests.browser.conftest import Watched
from tests.tools.fleet import Fleet
from tests.tools.waiting import eventually

#: A load waits for the cores, which other tests may keep busy, in milliseconds.
LOAD_MS = 60_000


def versions(fleet: Fleet) -> set[str]:
    return {model["id"] for model in fleet.api.get("/v1/models").json()["data"]}


@pytest.mark.timeout(300)
def test_version_is_loaded_and_unloaded(page: Page, fleet: Fleet, tiny_artifact: Artifact) -> None:
    name, version = tiny_artifact.manifest.name, tiny_artifact.manifest.version_id
    root = fleet.artifacts / name
    shutil.copytree(tiny_artifact.path.parents[1], root)
    try:
        fleet.wait_whole()
        page.goto(f"{fleet.url}/console/models")
        expect(page.get_by_text(f"On disk and not loaded: {version}")).to_be_visible()
        page.get_by_label("Version, or a name").fill(name)
        page.get_by_role("button", name="Load", exact=True).click()
        expect(page.locator("#note")).to_contain_text(f"{version} is to be loaded on all cores")
        card = page.locator(".model", has_text=version)
        expect(card.locator("details:has(.is-ready) option")).to_have_count(fleet.cores, timeout=LOAD_MS)

        page.on("dialog", lambda dialog: dialog.accept())
        card.get_by_role("button", name="Unload everywhere").click()
        expect(page.locator("#note")).to_contain_text(re.compile(f"{version} leaves all cores"))
        expect(card).to_have_count(0, timeout=LOAD_MS)
        eventually(lambda: version not in versions(fleet))
    finally:
        fleet.api.delete(f"/v1/cores/all/models/{version}", params={"force": "true"})
        eventually(lambda: version not in versions(fleet))
        shutil.rmtree(root)


def test_refusal_is_told_in_words(page: Page, fleet: Fleet, watched: Watched) -> None:
    watched.expected.append("409")
    page.goto(f"{fleet.url}/console/models")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Unload everywhere").first.click()
    expect(page.get_by_role("alert")).to_contain_text("alias")


def test_alias_goes_to_a_version_and_back(page: Page, fleet: Fleet) -> None:
    page.goto(f"{fleet.url}/console/models")
    page.get_by_label("of the new jobs of").select_option("default")
    page.get_by_role("button", name="Move the alias").click()
    expect(page.locator("#aliases")).to_contain_text("New jobs of default go by these shares")
    page.get_by_role("button", name="Let the settings decide again").click()
    expect(page.locator("#aliases")).to_contain_text("The settings of the workers decide again")
    [alias] = [each for each in fleet.api.get("/v1/aliases").json()["data"] if each["alias"] == "default"]
    assert not alias["is_set"]
