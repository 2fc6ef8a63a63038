"""The command that installs an extra works where it is shown: nothing asks an index for Corelane."""

import re
from importlib.metadata import distribution
from pathlib import Path

import pytest

from corelane.errors import extras
from corelane.errors.extras import HOME, install_command, requirements

REQUIRES = [
    "orjson>=3.11",
    'celery[redis]<5.8,>=5.7; extra == "api"',
    'corelane[api]; extra == "worker"',
    'torch>=2.9; extra == "worker"',
    'corelane[worker,remote]; extra == "all"',
    'fsspec>=2025.3; extra == "remote"',
]


def test_from_a_checkout_the_checkout_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert install_command("openvino").endswith(f"install -e '{HOME}[openvino]'")
    monkeypatch.chdir(HOME)
    assert install_command("openvino").endswith("install -e '.[openvino]'")


def test_without_a_checkout_the_requirements_of_the_extra_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(extras, "HOME", tmp_path)
    monkeypatch.setattr(extras, "distribution", lambda _: Installed(None))
    assert install_command("remote").endswith("install 'fsspec>=2025.3'")
    monkeypatch.setattr(extras, "distribution", lambda _: Installed(f'{{"url": "{HOME.as_uri()}"}}'))
    assert install_command("remote").endswith(f"install -e '{HOME}[remote]'")


class Installed:
    """What importlib.metadata knows of an installed Corelane."""

    requires = REQUIRES

    def __init__(self, direct_url: str | None) -> None:
        self._direct_url = direct_url

    def read_text(self, name: str) -> str | None:
        return self._direct_url


def test_extras_that_name_others_are_followed() -> None:
    assert set(requirements(REQUIRES, "all")) == {"celery[redis]<5.8,>=5.7", "torch>=2.9", "fsspec>=2025.3"}
    ours = set(requirements(distribution("corelane").requires or [], "all"))
    assert any(each.startswith("torch") for each in ours)
    assert not any(each.startswith("corelane") for each in ours)


def test_no_message_asks_an_index_for_corelane() -> None:
    folders = ("corelane", "api", "workers", "compile", "docs")
    files = [path for folder in folders for path in (HOME / folder).rglob("*.*") if path.suffix in (".py", ".md")]
    assert [path for path in files if re.search("install '?corelane", path.read_text())] == []
