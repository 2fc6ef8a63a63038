"""A service for the length of a block ends with the process that runs it."""

import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.tools.waiting import eventually

#: Starts a service without a model, writes down its URL and then does nothing.
RUN = """
import sys, time
from pathlib import Path
from corelane.cli.local import running_service

data = Path(sys.argv[1])
with running_service(data, target="null", model="null", cores=1) as url:
    (data / "url").write_text(url)
    time.sleep(600)
"""


def test_sigterm_ends_the_service_of_a_block_too(tmp_path: Path) -> None:
    written = tmp_path / "url"
    process = subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path)])
    try:
        eventually(lambda: written.is_file() and written.read_text() != "", 120)
        assert httpx2.get(f"{written.read_text()}/livez").is_success
    finally:
        process.send_signal(signal.SIGTERM)
    assert process.wait(90) == 128 + signal.SIGTERM
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{written.read_text()}/livez")
