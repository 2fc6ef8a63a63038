"""A Redis that speaks TLS: the bundled server does not. The installed one, or Debian's, unpacked without root.

``python -m tests.tls_server`` gets it. A machine that is not Debian, or cannot reach its package archive, has none:
then it says so, and the tests that need it are skipped.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CACHE = Path.home() / ".cache" / "corelane-tests" / "redis-tls"

#: The package with the server, under other names, and the libraries that few machines have.
PACKAGES = ("redis-tools", "libjemalloc2", "liblzf1", "libatomic1")

WRAPPER = """#!/bin/sh
LD_LIBRARY_PATH=$(echo {cache}/usr/lib/*-linux-gnu) exec {cache}/usr/bin/redis-server "$@"
"""


def find() -> Path | None:
    """Return a server that was built with TLS, if there is one."""
    for path in (shutil.which("redis-server"), CACHE / "redis-server"):
        if path and Path(path).exists() and _links_tls(Path(path)):
            return Path(path)
    return None


def need() -> Path:
    """Return it, or skip the test."""
    return find() or pytest.skip("no Redis with TLS: `make redis-tls` gets it")


def get() -> None:
    """Unpack Debian's packages into the cache folder."""
    shutil.rmtree(CACHE, ignore_errors=True)
    for folder in ("lists/partial", "archives/partial"):
        (CACHE / folder).mkdir(parents=True)
    own = ["-qq", "-o", f"Dir::State::Lists={CACHE}/lists", "-o", f"Dir::Cache={CACHE}", "-o", "Debug::NoLocking=1"]
    try:
        _run("apt-get", "download", *PACKAGES)
    except subprocess.CalledProcessError:
        _run("apt-get", *own, "update")
        _run("apt-get", *own, "download", *PACKAGES)
    for package in CACHE.glob("*.deb"):
        _run("dpkg", "-x", str(package), str(CACHE))
        package.unlink()
    (CACHE / "usr" / "bin" / "redis-server").symlink_to("redis-check-rdb")  # one program, named in three ways
    (CACHE / "redis-server").write_text(WRAPPER.format(cache=CACHE))
    (CACHE / "redis-server").chmod(0o755)
    for folder in ("lists", "archives", "usr/share"):
        shutil.rmtree(CACHE / folder, ignore_errors=True)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, text=True, timeout=300, cwd=CACHE)


def _links_tls(path: Path) -> bool:
    program = CACHE / "usr" / "bin" / "redis-server" if path.parent == CACHE else path
    done = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=60, check=False)
    return "libssl" in done.stdout


if __name__ == "__main__":
    if found := find():
        sys.stdout.write(f"Redis with TLS is {found}\n")
        sys.exit()
    try:
        get()
        sys.stdout.write(f"Redis with TLS is {find()}\n")
    except (OSError, subprocess.SubprocessError) as error:
        reason = str(getattr(error, "stderr", None) or error).strip()
        sys.stdout.write(f"no Redis with TLS, and its tests are skipped: {reason[-300:]}\n")
