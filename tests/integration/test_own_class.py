"""``corelane serve --handler --reload``: a class that is served anew at each save, on a whole fleet."""

import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.tools.fleet import Fleet, launch_fleet, running
from tests.tools.snippets import ROOT
from tests.tools.waiting import eventually

CLASS = """
import os
from pydantic import BaseModel, Field
from corelane import Handler

class Input(BaseModel):
    text: str = Field(examples=["a"])

class Output(BaseModel):
    said: str

class MyClass(Handler):
    Input, Output = Input, Output

    def setup(self, core):
        self.said = "one"

    def predict(self, items):
        return [{"said": self.said if item.text != "key" else {}["secret"]} for item in items]
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    file = tmp_path / "mine" / "model.py"
    file.write_text(CLASS)
    return file


def launch(built_in_data: Path, folder: Path, *options: str) -> Fleet:
    artifacts = shutil.copytree(built_in_data / "artifacts", folder / "artifacts", copy_function=os.link)
    options = ("--handler", "mine.model:MyClass", "--cores", "1", "--no-flower", *options)
    return launch_fleet(folder / "data", artifacts, *options, PYTHONPATH=f"{folder}{os.pathsep}{ROOT}")


@pytest.fixture
def fleet(built_in_data: Path, tmp_path: Path, package: Path) -> Iterator[Fleet]:
    assert package.is_file()
    with running(launch(built_in_data, tmp_path, "--reload")) as fleet:
        yield fleet


def ask(fleet: Fleet, text: str = "a") -> dict[str, Any]:
    body = {"model": "my-class", "text": text}
    job = fleet.api.post("/v1/jobs", json=body, headers={"Prefer": "wait=30"}).raise_for_status().json()
    return dict(job["results"][0])


def said_of(fleet: Fleet, sentence: str) -> bool:
    return any(sentence in line and " goes on" in line for line in fleet.log_text().splitlines())


#: A save is packaged in a process of its own, which may have to wait for a CPU; in seconds.
LONG_S = 240

#: Saves that break the class, and what is said of each.
BROKEN = {
    "def predict(": ("def predict(:", "mine.model:MyClass does not import: SyntaxError"),
    "def predict": ("def judge", "mine.model:MyClass has no predict"),
    "for item in items]": ("for item in items[1:]]", "predict gave 0 outputs for 1 items"),
    'self.said = "one"': ("raise KeyError", "setup of mine.model:MyClass raised KeyError at model.py:"),
    "self.said = ": (
        'self.said = os.environ.get("CORELANE_CORE") and {}["x"] or ',
        "does not load: load_failed: setup of",
    ),
    "text: str": ("text: type", "Input has no JSON schema"),
}


def test_saves_are_served_without_a_gap_and_broken_ones_are_said_in_a_sentence(fleet: Fleet, package: Path) -> None:
    [core] = fleet.states().values()
    stop, said, failures = threading.Event(), list[Any](), list[Any]()

    def go_on() -> None:
        while not stop.wait(0.2):
            result = ask(fleet)
            (said if result["status"] == "succeeded" else failures).append((result["output"] or {}).get("said"))

    assert ask(fleet)["output"] == {"said": "one"}
    asking = threading.Thread(target=go_on)
    asking.start()
    try:
        for old, (new, sentence) in BROKEN.items():
            package.write_text(CLASS.replace(old, new))
            eventually(partial(said_of, fleet, sentence), LONG_S, fleet.last_words)
        package.write_text(CLASS.replace('"one"', '"two"'))
        eventually(lambda: said[-1] == "two", LONG_S, fleet.last_words)
    finally:
        stop.set()
        asking.join()
    assert (failures, said) == ([], sorted(said)), "no gap, and never back"
    assert [each["pid"] for each in fleet.states().values()] == [core["pid"]], "its process was not replaced"
    eventually(lambda: fleet.api.get("/v1/models").text.count('"id":"my-class@') == 1, why=fleet.last_words)
    assert "predict raised KeyError at model.py:19" in ask(fleet, "key")["error"]["detail"]


def test_class_that_is_broken_from_the_start_ends_the_service_in_a_sentence(
    built_in_data: Path, tmp_path: Path, package: Path
) -> None:
    package.write_text(CLASS.replace("def predict", "def judge"))
    fleet = launch(built_in_data, tmp_path)
    try:
        assert fleet.process.wait(LONG_S) == 1
    finally:
        fleet.end()
    assert "stopped: mine.model:MyClass has no predict: give it one" in fleet.log_text()
