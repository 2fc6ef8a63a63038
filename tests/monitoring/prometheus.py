"""Prometheus for tests: the installed one, or Debian's package, unpacked into a cache folder without root.

``python -m tests.monitoring.prometheus`` gets it. A machine that is not Debian, or cannot reach its package archive,
has none: then it says so, loudly, and the tests that need it are skipped.
"""

import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import free_port
from tests.tools.waiting import eventually

MONITORING = Path(__file__).parent.parent.parent / "deploy" / "monitoring"

CACHE = Path.home() / ".cache" / "corelane-tests" / "prometheus"

#: The scrape interval of the tests: seconds of real time are all they have.
SCRAPE_INTERVAL = "1s"


yaml: Any = pytest.importorskip("yaml")


def rules(name: str) -> list[dict[str, Any]]:
    """Return the rules of a file: ``alerts`` or ``recording``."""
    read = yaml.safe_load((MONITORING / "rules" / f"{name}.yml").read_text())
    return [rule for group in read["groups"] for rule in group["rules"]]


def find(name: str) -> str | None:
    """Return where ``prometheus`` or ``promtool`` is, if anywhere."""
    return shutil.which(name) or shutil.which(name, path=str(CACHE / "usr" / "bin"))


def need(name: str) -> str:
    """Return where it is, or skip the test."""
    return find(name) or pytest.skip(f"no {name}: `make prometheus` gets it")


def run(*argv: str) -> None:
    """Run a command; raises CalledProcessError with what it said."""
    subprocess.run(argv, check=True, capture_output=True, text=True, timeout=300, cwd=CACHE)


def get() -> None:
    """Unpack Debian's package into the cache folder, with lists of packages of our own."""
    shutil.rmtree(CACHE, ignore_errors=True)
    for folder in ("lists/partial", "archives/partial"):
        (CACHE / folder).mkdir(parents=True)
    own = ["-qq", "-o", f"Dir::State::Lists={CACHE}/lists", "-o", f"Dir::Cache={CACHE}", "-o", "Debug::NoLocking=1"]
    try:
        run("apt-get", "download", "prometheus")
    except subprocess.CalledProcessError:
        run("apt-get", *own, "update")
        run("apt-get", *own, "download", "prometheus")
    [package] = CACHE.glob("prometheus_*.deb")
    run("dpkg", "-x", str(package), str(CACHE))
    package.unlink()
    for folder in ("lists", "archives", "usr/share", "var"):
        shutil.rmtree(CACHE / folder, ignore_errors=True)


class Prometheus:
    """A running Prometheus, with the rules of this repository."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, path: str, **query: str) -> Any:
        """Ask its HTTP interface."""
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=30) as reply:
            return json.load(reply)["data"]

    def values(self, query: str) -> list[dict[str, Any]]:
        """Return what a query finds now."""
        found: list[dict[str, Any]] = self.ask("query", query=query)["result"]
        return found

    def without_data(self, queries: Iterable[str]) -> list[str]:
        """Return the queries that had no data at any time; NaN, as of a quantile of nothing, is none."""
        return [query for query in queries if not self.values(f"count_over_time((({query}) >= 0)[10m:2s])")]

    def is_up(self) -> bool:
        try:
            return bool(self.values("up == 1"))
        except (urllib.error.URLError, ConnectionError):
            return False


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Prometheus]:
    """Run Prometheus on this repository's configuration, but for the target and the interval."""
    binary = need("prometheus")
    config = (MONITORING / "prometheus.yml").read_text()
    config = config.replace("api:8000", target).replace("_interval: 15s", f"_interval: {SCRAPE_INTERVAL}")
    (folder / "prometheus.yml").write_text(config)
    shutil.copytree(MONITORING / "rules", folder / "rules")
    address = f"127.0.0.1:{free_port()}"
    argv = [binary, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    argv += [f"--web.listen-address={address}", "--log.level=warn"]
    log = folder / "prometheus.log"
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT)
    try:
        running = Prometheus(f"http://{address}")
        eventually(lambda: process.poll() is not None or running.is_up(), why=log.read_text)
        if process.poll() is not None:
            raise RuntimeError("Prometheus did not start:\n" + log.read_text())
        yield running
    finally:
        process.terminate()
        process.wait(60)


def main() -> None:
    """Get Prometheus, or say loudly that there is none; that fails nobody's build."""
    if find("prometheus") and find("promtool"):
        return
    try:
        get()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        said = getattr(error, "stderr", "") or error
        line = "!" * 100
        text = f"MONITORING IS NOT TESTED: no Prometheus here, and Debian's package cannot be had.\n{said}"
        sys.stderr.write(f"{line}\n{text}\n{line}\n")


if __name__ == "__main__":
    main()
