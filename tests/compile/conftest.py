"""Fixtures: a model with a changed config, and a hub on the loopback."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

Edit = Callable[..., Path]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Hold torch to one thread: tests share the machine, and threads that wait for each other are far slower."""
    from compile.model.timing import one_thread

    with one_thread():
        yield


@pytest.fixture
def edited(tiny_model: Path, tmp_path: Path) -> Edit:
    """Copy the tiny model with a changed config."""

    def edit(**config: Any) -> Path:
        folder = Path(shutil.copytree(tiny_model, tmp_path / "edited-qa"))
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))
        return folder

    return edit


#: What the hub says of models and revisions that it does not give: a status and a code.
REFUSED = {"gated": (403, "GatedRepo"), "none": (404, "RevisionNotFound"), "broken": (503, "")}


class HubStub(BaseHTTPRequestHandler):
    """The part of the Hugging Face hub that a download needs, over one folder."""

    commit = "1" * 40

    def __init__(self, folder: Path, *args: Any) -> None:
        self.folder = folder
        super().__init__(*args)

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, with_body: bool) -> None:
        parts = self.path.strip("/").split("/")
        if refused := next((REFUSED[part] for part in parts if part in REFUSED), None):
            self.send(refused[0], b"{}", with_body, **{"X-Error-Code": refused[1]})
        elif parts[:5] == ["api", "models", "some", "tiny-qa", "tree"]:
            tree = [
                {"type": "file", "path": path.name, "size": path.stat().st_size, "oid": path.name}
                for path in self.folder.iterdir()
            ]
            self.send(200, json.dumps(tree).encode(), with_body)
        elif parts[:4] == ["api", "models", "some", "tiny-qa"]:
            siblings = [{"rfilename": path.name} for path in self.folder.iterdir()]
            model = {"id": "some/tiny-qa", "sha": self.commit, "siblings": siblings, "private": False}
            self.send(200, json.dumps(model).encode(), with_body)
        elif parts[:3] == ["some", "tiny-qa", "resolve"] and (self.folder / parts[-1]).is_file():
            self.send(200, (self.folder / parts[-1]).read_bytes(), with_body, ETag=f'"{parts[-1]}"')
        else:
            self.send(404, b"{}", with_body, **{"X-Error-Code": "RepoNotFound"})

    def send(self, status: int, body: bytes, with_body: bool, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"X-Repo-Commit": self.commit, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set an empty cache for downloads."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_XET_CACHE", str(tmp_path / "xet"))
    return tmp_path / "hub"


@pytest.fixture
def hub(tiny_model: Path, hub_cache: Path) -> Iterator[str]:
    """Run a hub that has one model, `some/tiny-qa`, and return its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(HubStub, tiny_model))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()
