"""The systemd units and the Procfile: commands that exist, units that systemd takes, and how much they may."""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from corelane.cli.serve import ROLES
from corelane.settings import Settings
from tests.deploy.commands import check_command

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))

#: Of 10; what `systemd-analyze security` says of a unit without any of it is 9.6.
MOST_EXPOSED = 1.5


class Unit(configparser.ConfigParser):
    """A unit file: names as they are written, and some of them more than once."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def read(unit: Path) -> Unit:
    found = Unit(strict=False, interpolation=None)
    found.read(unit)
    return found


def analyze(*arguments: str) -> "subprocess.CompletedProcess[str]":
    tool = shutil.which("systemd-analyze") or pytest.skip("no systemd-analyze: Debian's package systemd has it")
    return subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_every_process_of_a_fleet_has_a_unit_but_redis() -> None:
    assert {unit.stem.rstrip("@").removeprefix("corelane-") for unit in UNITS} == set(ROLES) - {"redis"}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_unit_runs_a_command_that_is_there_and_comes_back(unit: Path) -> None:
    service = read(unit)["Service"]
    check_command(service["ExecStart"].replace("%i", "0"))
    assert service["Restart"] == "always"
    assert read(unit)["Unit"]["StartLimitIntervalSec"] == "0"
    assert service["KillMode"] == "mixed"


def test_worker_has_longer_to_stop_than_its_longest_batch() -> None:
    [worker] = [unit for unit in UNITS if "@" in unit.name]
    assert float(read(worker)["Service"]["TimeoutStopSec"]) > Settings().exec_timeout_s * 2


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    for file in (*UNITS, FOLDER / "corelane.target"):
        text = re.sub(r"^ExecStart=\S+", f"ExecStart={Path(sys.executable)}", file.read_text(), flags=re.MULTILINE)
        (tmp_path / file.name).write_text(text)
    for folder in ("", "/corelane-worker@.service.d"):
        Path(f"{tmp_path}{folder}").mkdir(exist_ok=True)
    shutil.copy(FOLDER / "neuron.conf", tmp_path / "corelane-worker@.service.d")
    done = analyze("verify", "--man=no", str(tmp_path / unit.name.replace("@", "@0")))
    said = [line for line in done.stderr.splitlines() if str(tmp_path) in line or line.startswith(unit.stem)]
    assert (done.returncode, said) == (0, []), done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_unit_may_do_little(unit: Path) -> None:
    done = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED * 10:.0f}", "--no-pager", str(unit))
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd cannot judge a unit that is not installed; 250 and later can")
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_settings_of_a_host_are_settings() -> None:
    names = re.findall(r"^(?:# )?CORELANE_(\w+)=", (FOLDER / "corelane.env").read_text(), flags=re.MULTILINE)
    assert {name.lower() for name in names} <= set(Settings.model_fields)
    assert {"REDIS_URL", "WEBHOOK_SECRET"} <= set(names)


def test_procfile_runs_every_role_but_redis() -> None:
    lines = (ROOT / "Procfile").read_text().splitlines()
    found = dict(re.fullmatch(r"(\w+): (.+)", line).groups() for line in lines)  # type: ignore[union-attr,misc]
    assert set(found) == set(ROLES) - {"redis"}
    for command in found.values():
        check_command(command)
