"""nginx in front of a service, or of several, by a configuration that stands in the docs."""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")  # noqa: TID251

DOCS = Path(__file__).parent.parent / "docs"

#: nginx listens within this, in seconds.
UP_S = 20.0

#: nginx's folders for bodies and answers; where Debian puts them, ordinary users may not write.
FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def nginx_before(url: str) -> AbstractContextManager[str]:
    """Run the nginx of docs/keys.md in front of a service for the length of a block; yield nginx's URL."""
    return run_nginx(DOCS / "keys.md", ("server 127.0.0.1:8000;", f"server {url.removeprefix('http://')};"))


@contextmanager
def run_nginx(page: Path, *changes: tuple[str, str]) -> Iterator[str]:
    """Run nginx by the configuration on a page, with some of its texts replaced; yield nginx's URL."""
    [config] = re.findall(r"^```nginx\n(.+?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "{}:{}".format(*free.getsockname())
    with tempfile.TemporaryDirectory() as folder:
        own = "".join(f"{name}_temp_path {folder};" for name in FOLDERS)
        for there, here in (
            ("listen 80;", f"listen {address};"),
            ("http {", f"http {{ access_log off; {own}"),
            *changes,
        ):
            if config.count(there) != 1:
                raise ValueError(f"{page}: the configuration has `{there}` not once")
            config = config.replace(there, here)
        user = "user root;" if os.geteuid() == 0 else ""
        path = Path(folder) / "nginx.conf"
        path.write_text(f"daemon off; error_log stderr; pid {folder}/pid; {user}\n{config}")
        process = subprocess.Popen([str(NGINX), "-p", folder, "-e", "stderr", "-c", path])
        try:
            _wait_until_up(address)
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(60)


def _wait_until_up(address: str) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + UP_S
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((host, int(port))):
            return
        time.sleep(0.02)
    raise TimeoutError(f"nginx does not listen on {address}")
