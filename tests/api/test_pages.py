"""/docs works without the internet: its files are ours, unchanged, and it refers to nothing else."""

import asyncio
import hashlib
import re
from html.parser import HTMLParser

import httpx2

from api.app import create_app
from api.docs.swagger import FOLDER, PAGE
from corelane.settings import Settings


class Addresses(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("href", "src")]


def test_vendored_files_are_those_that_were_published() -> None:
    sums = dict(line.split()[::-1] for line in (FOLDER / "SHA256SUMS").read_text().splitlines())
    assert set(sums) | {"SHA256SUMS", "README.md", "corelane.js"} == {path.name for path in FOLDER.iterdir()}
    for name, wanted in sums.items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == wanted, name


def test_licence_and_version_stand_beside_them() -> None:
    assert "Apache License" in (FOLDER / "LICENSE").read_text()
    assert re.search(r"swagger-ui-dist\S*\s\d+\.\d+\.\d+", (FOLDER / "README.md").read_text())


def test_page_refers_to_files_that_are_there_and_to_nothing_outside() -> None:
    parser = Addresses()
    parser.feed(PAGE)
    assert len(parser.found) == 4
    for address in parser.found:
        assert (FOLDER / address.removeprefix("docs/")).is_file()
    assert "//" not in PAGE
    assert "<script>" not in PAGE
    assert "url(http" not in (FOLDER / "swagger-ui.css").read_text()
    assert "validatorUrl: null" in (FOLDER / "corelane.js").read_text()


def test_probes_are_answered_while_the_first_document_is_written(settings: Settings) -> None:
    answered: list[str] = []

    async def go() -> None:
        transport = httpx2.ASGITransport(create_app(settings))
        async with httpx2.AsyncClient(transport=transport, base_url="http://corelane.test") as client:

            async def ask(path: str) -> None:
                (await client.get(path)).raise_for_status()
                answered.append(path)

            async with asyncio.TaskGroup() as asking:
                for path in ("/openapi.json", "/openapi.json", "/livez"):
                    asking.create_task(ask(path))

    asyncio.run(go())
    assert answered == ["/livez", "/openapi.json", "/openapi.json"]
