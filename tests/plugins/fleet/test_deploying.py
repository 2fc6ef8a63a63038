"""Files for Docker Compose: one worker for each core, on the device that its core is on."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from corelane.cli.app import make_cli
from corelane.domain.instances import INSTANCES
from corelane.engine.backends.neuron.chips import CHIPS
from corelane.errors import InvalidInput
from corelane.plugins.fleet.compose import Choices, compose_file, compose_override
from corelane.plugins.fleet.layout import LARGEST, TARGETS, Layout, lay_out, target_of
from corelane.settings import Settings

yaml: Any = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[3]

#: Files as they are written, but for most of the settings that they hand on. Written again by
#: `python -m tests.plugins.fleet.test_deploying`.
GOLDEN = {
    "inf2.24xlarge.yml": Layout("inf2", 12, 2, "inf2.24xlarge"),
    "trn2-two-chips.yml": Layout("trn2", 8, 4),
}

#: Stand for all settings in the golden files, which others need not change with each setting.
SOME_SETTINGS = ("redis_url", "target", "model", "instance", "auth", "lease_s")


def golden(name: str) -> str:
    return compose_file(GOLDEN[name], SOME_SETTINGS)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_file_is_as_it_was(name: str) -> None:
    assert (Path(__file__).parent / "compose" / name).read_text() == golden(name)


@pytest.mark.parametrize("layout", [*GOLDEN.values(), Layout("inf1", 5, 4), Layout("cpu", 12), Layout("cuda", 2)])
def test_each_core_has_a_worker_on_its_device(layout: Layout) -> None:
    services = yaml.safe_load(compose_file(layout, SOME_SETTINGS))["services"]
    workers = {name: each for name, each in services.items() if name.startswith("worker-")}
    assert list(workers) == [f"worker-{core}" for core in range(layout.cores)]
    for core, worker in enumerate(workers.values()):
        environment = worker["environment"]
        assert (worker["command"][-1], environment["CORELANE_CORE"]) == (str(core), str(core))
        assert worker.get("profiles") == (["neuron"] if layout.chips else None)
        if layout.chips:
            device = f"/dev/neuron{core // CHIPS[layout.target].logical_cores}"
            assert worker["devices"] == [f"{device}:{device}"]
            assert environment["NEURON_RT_VISIBLE_CORES"] == str(core)
        assert ("NEURON_LOGICAL_NC_CONFIG" in environment) == (layout.target == "trn2")
        assert environment.get("CORELANE_TARGET") == (None if layout.target == "cpu" else layout.target)


def test_what_is_written_for_inf1_is_compiled_and_run_in_the_python_that_its_image_has() -> None:
    services = yaml.safe_load(compose_file(Layout("inf1", 1, 4), ["neuron_python"]))["services"]
    for service in (services["compile"], services["worker-0"]):
        assert service["build"]["dockerfile"] == "deploy/inf1.Dockerfile"
        # Unset on the host, it is the default in the container.
        assert service["environment"]["CORELANE_NEURON_PYTHON"] is None
    image = (ROOT / "deploy" / "inf1.Dockerfile").read_text()
    assert f"COPY --from=build /opt/neuron/{Settings().neuron_python} /usr/local/bin/" in image


def test_what_needs_no_device_starts_without_the_profile() -> None:
    """Compose refuses a service that depends on one whose profile is off."""
    services = yaml.safe_load(golden("inf2.24xlarge.yml"))["services"]
    for service in services.values():
        if "profiles" not in service:
            assert all("profiles" not in services[other] for other in service.get("depends_on", ()))


def test_a_further_host_has_workers_alone() -> None:
    file = yaml.safe_load(compose_file(lay_out("inf2", 3), SOME_SETTINGS, Choices(workers_alone=True)))
    assert list(file["services"]) == ["compile", "worker-0", "worker-1", "worker-2"]
    assert list(file["volumes"]) == ["data"]
    for name, service in file["services"].items():
        assert set(service.get("depends_on", ())) <= {"compile"}, name
        for variable in ("CORELANE_REDIS_URL", "CORELANE_CORE_HOST"):
            assert service["environment"][variable].startswith(f"${{{variable}:?"), "Compose stops where it is not set"


def test_devices_can_be_shared() -> None:
    text = compose_file(lay_out("inf2", 3), (), Choices(share_devices=True))
    devices = [each["devices"] for name, each in yaml.safe_load(text)["services"].items() if "worker" in name]
    assert devices == [["/dev/neuron0:/dev/neuron0", "/dev/neuron1:/dev/neuron1"]] * 3


@pytest.mark.parametrize("layout", [Layout("cpu", 1), Layout("cpu", 2), Layout("cpu", 4), Layout("inf2", 3, 2)])
def test_an_override_makes_the_compose_file_run_so_many_workers(layout: Layout) -> None:
    base = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    override = yaml.safe_load(compose_override(layout))["services"]
    merged = {**base, **{name: {**base.get(name, {}), **service} for name, service in override.items()}}
    workers = {name: each for name, each in merged.items() if name.startswith("worker-") and each.get("scale") != 0}
    assert list(workers) == [f"worker-{n}" for n in range(layout.cores)]
    assert [each["environment"]["CORELANE_CORE"] for each in workers.values()] == [str(n) for n in range(layout.cores)]
    for name, each in override.items():
        if name not in base:
            assert each["command"][-1] == name.removeprefix("worker-")
            assert each["extends"]["service"] in base


def test_the_server_runs_as_the_user_of_its_image() -> None:
    redis = yaml.safe_load(compose_file(Layout("cpu", 1), (), Choices("valkey/valkey:8")))["services"]["redis"]
    assert (redis["image"], redis["user"]) == ("${REDIS_IMAGE:-valkey/valkey:8}", "${REDIS_USER:-valkey}")
    override = yaml.safe_load(compose_override(Layout("cpu", 1), Choices("valkey/valkey:8")))["services"]["redis"]
    assert override == {"image": redis["image"], "user": redis["user"]}


def test_cores_of_a_chip_are_those_of_the_engine() -> None:
    for target, chip in CHIPS.items():
        assert LARGEST[target].cores // LARGEST[target].chips == chip.logical_cores
    assert set(TARGETS) == {"cpu", "cuda", *CHIPS}
    assert target_of(INSTANCES["trn1n.32xlarge"]) == "trn1"


def test_a_host_is_laid_out_by_cores_chips_or_its_type() -> None:
    assert lay_out("inf2", 3) == Layout("inf2", 3, 2)
    assert lay_out("inf2", 3).chips == 2
    assert lay_out("trn2", chips=2) == Layout("trn2", 8, 4)
    assert lay_out(instance="inf1.6xlarge") == Layout("inf1", 16, 4, "inf1.6xlarge")
    assert lay_out(cores=2) == Layout("cpu", 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": "inf2", "cores": 0}, "--cores is 0; it must be 1 or more"),
        ({"target": "inf2", "chips": -1}, "--chips is -1; it must be 1 or more"),
        ({"target": "inf2", "cores": 25}, "--cores is 25, but inf2.48xlarge, the largest host of this target, has 24"),
        ({"instance": "inf2.24xlarge", "cores": 13}, "--cores is 13, but inf2.24xlarge has 12"),
        ({"instance": "inf2.24xlarge", "chips": 7}, "--chips is 7, but inf2.24xlarge has 6"),
        ({"target": "inf2", "chips": 2, "cores": 5}, "--cores is 5, but 2 chips of inf2 have 4"),
        ({"target": "gaudi", "cores": 2}, "gaudi: no such target; there are cpu, inf1, inf2, trn1, trn2, cuda"),
        ({"target": "cpu", "instance": "inf2.xlarge"}, "inf2.xlarge has no cpu cores; its target is inf2"),
        ({"target": "cpu", "chips": 2}, "--chips is for Neuron targets; cpu has none: give --cores"),
        ({"instance": "m5.large"}, "m5.large: no such type of host"),
        ({"target": "trn1"}, "give --cores, --chips or --instance"),
        ({}, "give the number of workers: --cores N"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        lay_out(**given)


def test_the_command_writes_a_file_or_prints_it(tmp_path: Path) -> None:
    path = tmp_path / "docker-compose.yml"
    done = CliRunner().invoke(make_cli(), ["compose", "--cores", "2", "--output", str(path)])
    assert (done.exit_code, done.stdout) == (0, "")
    assert path.read_text() == (ROOT / "docker-compose.yml").read_text()
    done = CliRunner().invoke(make_cli(), ["compose", "--cores", "3", "--override"])
    assert set(yaml.safe_load(done.stdout)["services"]) == {"worker-0", "worker-1", "worker-2"}
    done = CliRunner().invoke(make_cli(), ["compose", "--cores", "3", "--override", "--workers-alone"])
    assert (done.exit_code, done.stdout) == (1, "")
    done = CliRunner().invoke(make_cli(), ["compose", "--cores", "0"])
    assert (done.exit_code, done.stderr.strip()) == (1, "--cores is 0; it must be 1 or more")
    done = CliRunner().invoke(make_cli(), ["compose", "--cores", "1", "--redis-image", "a b"])
    assert (done.exit_code, done.stderr.strip()) == (1, "'a b' is not the name of an image, as redis:7-alpine is")


if __name__ == "__main__":
    for each in GOLDEN:
        (Path(__file__).parent / "compose" / each).write_text(golden(each))
