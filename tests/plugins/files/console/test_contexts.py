"""Stored contexts on the console: stored, listed, asked about, deleted; and what is said where that fails."""

import pytest
import redis
from fastapi.testclient import TestClient

from api.app import create_app
from corelane.domain.texts import text_id
from corelane.settings import Settings
from corelane.store import keys
from tests.api.office import ANN, BOB, Office
from tests.corelane.store_bench import VERSION, LoneCore, answered
from tests.plugins.console.conftest import OWN, text_of

TEXT = "Ada wrote the first program.\nZoë read it."
NAME = text_id(TEXT)


def store(console: TestClient, text: str = TEXT, **fields: str) -> str:
    """Store a passage by the form, and return the address that the page leads to."""
    sent = console.post("/console/contexts", data={"text": text.replace("\n", "\r\n"), **fields})
    assert sent.status_code == 303, text_of(sent.text)
    return sent.headers["location"].removeprefix("../console/")


def test_passage_is_stored_as_it_was_typed_listed_and_deleted(console: TestClient) -> None:
    assert store(console, name="<b>notes", expires_in_s="3600") == f"contexts/{NAME}?did=stored"
    assert store(console) == f"contexts/{NAME}?did=stored-again"
    listed = console.get("/console/contexts").text
    assert "&lt;b&gt;notes" in listed
    assert f'href="ask?context_id={NAME}"' in listed
    assert console.get(f"/console/contexts/{NAME}/text").text == TEXT
    assert "Zoë read it." in console.get(f"/console/contexts/{NAME}/shown").text
    page = console.get(f"/console/contexts/{NAME}").text
    assert "41 characters" in text_of(page)
    assert TEXT[:3] not in page
    assert console.post(f"/console/contexts/{NAME}/delete").status_code == 303
    assert console.get(f"/console/contexts/{NAME}").status_code == 404


def test_long_text_is_shown_in_part(console: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corelane.plugins.files.console.texts.MOST_SHOWN", 10)
    store(console)
    shown = text_of(console.get(f"/console/contexts/{NAME}/shown").text)
    assert shown == "Ada wrote The first 10 of 41 characters. The download has all of them."


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"text": " \r\n"}, "must hold more than white space"),
        ({"text": ""}, "Passage:"),
        ({"text": "t", "expires_in_s": "1"}, "Kept:"),
        ({"text": "t", "expires_in_s": "9" * 12}, "at most 604800"),
        ({"text": "t", "name": "n" * 300}, "Name:"),
    ],
)
def test_what_is_wrong_with_a_passage_stands_above_the_form(
    console: TestClient, fields: dict[str, str], said: str
) -> None:
    refused = console.post("/console/contexts", data=fields)
    assert (refused.status_code, said in text_of(refused.text)) == (422, True), text_of(refused.text)
    assert not console.get("/v1/contexts").json()["data"]


def test_full_store_is_told_on_the_page(settings: Settings, core: LoneCore) -> None:
    small = settings.model_copy(update={"max_contexts": 1})
    with TestClient(create_app(small), headers=OWN, follow_redirects=False) as console:
        store(console)
        refused = console.post("/console/contexts", data={"text": "another"})
        assert (refused.status_code, "CORELANE_MAX_CONTEXTS" in refused.text) == (429, True)
        assert "another</textarea>" in refused.text


def test_question_names_a_stored_context(console: TestClient, core: LoneCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corelane.plugins.console.pages.ask.WAIT_S", 0.1)
    store(console, name="notes")
    form = console.get(f"/console/ask?context_id={NAME}").text
    assert f'value="{NAME}"' in form
    assert "notes, 42 B" in text_of(form)
    asked = console.post("/console/ask", data={"question": "Who?", "context": "", "context_id": f" {NAME} "})
    assert "Not done yet" in asked.text
    assert f"&#34;context_id&#34;: &#34;{NAME}&#34;" in asked.text
    claim = core.claim([VERSION], linger=False)
    assert claim is not None
    assert [text for stretch in core.fetch(claim) for _, _, text in stretch.items] == [TEXT]
    core.commit(claim.lease, answered(claim))
    assert console.get(f"/v1/contexts/{NAME}").json()["jobs"] == 1


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"context": "Ada.", "context_id": NAME}, 422, "Give a passage or a stored context, not both."),
        ({"context_id": NAME}, 422, "There is no stored context ctx_"),
        ({"context_id": "notes"}, 422, "must name a stored context"),
        ({}, 422, "Passage:"),
    ],
)
def test_what_is_wrong_with_a_named_context_is_told(
    console: TestClient, fields: dict[str, str], status: int, said: str
) -> None:
    refused = console.post("/console/ask", data={"question": "Who?", **fields})
    assert (refused.status_code, said in text_of(refused.text)) == (status, True), text_of(refused.text)


def test_contexts_of_another_owner_are_unknown(office: Office, raw: redis.Redis) -> None:
    made = office.call(ANN, "POST", "/v1/contexts", json={"text": TEXT, "name": "mine"})
    assert made.status_code == 201
    assert "mine" in office.call(ANN, "GET", "/console/contexts").text
    assert "mine" not in office.call(BOB, "GET", "/console/contexts").text
    for place in ("", "/shown", "/text"):
        assert office.call(BOB, "GET", f"/console/contexts/{NAME}{place}").status_code == 404
    assert _delete(office, BOB) == 404
    assert _delete(office, ANN) == 303
    assert not raw.exists(keys.stored_text(ANN, NAME.removeprefix("ctx_")))


def _delete(office: Office, who: str) -> int:
    headers = OWN | {"Authorization": f"Bearer {office.secrets[who]}"}
    path = f"/console/contexts/{NAME}/delete"
    return office.api.post(path, headers=headers, follow_redirects=False).status_code
