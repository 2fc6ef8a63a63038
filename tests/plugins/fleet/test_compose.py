"""Files for Docker Compose: what `corelane compose` writes, and the repository's own, which hands on every setting.

Read, not run: there is no Docker where tests run. `make compose-lab` runs it.
"""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from corelane import __version__
from corelane.cli.app import make_cli
from corelane.domain.instances import INSTANCES
from corelane.engine.backends.neuron.chips import CHIPS
from corelane.errors import InvalidInput
from corelane.plugins.fleet.compose import Choices, compose_file, compose_override
from corelane.plugins.fleet.layout import LARGEST, TARGETS, Layout, lay_out, target_of
from corelane.settings import Settings

yaml: Any = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[3]
COMPOSE = ROOT / "docker-compose.yml"

#: Files as they are written, but for most of the settings that they hand on. Written again by
#: `python -m tests.plugins.fleet.test_compose`.
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
    base = yaml.safe_load(COMPOSE.read_text())["services"]
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
    assert path.read_text() == COMPOSE.read_text(), "run `.venv/bin/corelane compose --cores 2 -o docker-compose.yml`"
    done = CliRunner().invoke(make_cli(), ["compose", "--cores", "3", "--override"])
    assert set(yaml.safe_load(done.stdout)["services"]) == {"worker-0", "worker-1", "worker-2"}
    done = CliRunner().invoke(make_cli(), ["compose", "--cores", "3", "--override", "--workers-alone"])
    assert (done.exit_code, done.stdout) == (1, "")
    done = CliRunner().invoke(make_cli(), ["compose", "--cores", "0"])
    assert (done.exit_code, done.stderr.strip()) == (1, "--cores is 0; it must be 1 or more")
    done = CliRunner().invoke(make_cli(), ["compose", "--cores", "1", "--redis-image", "a b"])
    assert (done.exit_code, done.stderr.strip()) == (1, "'a b' is not the name of an image, as redis:7-alpine is")


#: Settings that the file decides: addresses, ports and folders inside a container, and what only commands outside use.
FIXED = {
    *("redis_url", "data_dir", "models_dir", "host", "port", "flower_host", "flower_port", "core", "url", "api_key"),
    *("health_dir",),
}

#: Services that are none of ours, with what they read and keep; the others get every setting.
FOREIGN = {"redis", "prometheus", "grafana"}

#: Settings with another default in containers.
GIVEN = {"core_host", "model", "log_level", "auth"}


def test_no_container_can_write_its_root_or_gain_rights() -> None:
    for name, service in yaml.safe_load(COMPOSE.read_text())["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert "cap_add" not in service, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service.get("privileged"), name
        assert all("docker.sock" not in volume for volume in service["volumes"]), name


@pytest.mark.parametrize("name", ["Dockerfile", "deploy/neuron.Dockerfile", "deploy/inf1.Dockerfile"])
def test_images_are_built_in_stages_and_run_as_a_user_of_their_own(name: str) -> None:
    lines = (COMPOSE.parent / name).read_text().splitlines()
    bases = [line for line in lines if line.startswith("FROM ")]
    assert bases[-2].endswith(" AS build"), "the last stage has no compilers"
    assert all("${" in base for base in bases), "the base can be pinned"
    assert f"ARG VERSION={__version__}" in lines
    after = lines[lines.index(bases[-1]) :]
    assert "USER 10001:10001" in after
    assert [line for line in after if line.startswith("HEALTHCHECK ")]
    assert not [line for line in after if "pip install" in line]


def test_every_setting_reaches_every_container() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    for name, service in services.items():
        if name in FOREIGN:
            continue
        environment = service["environment"]
        for field in Settings.model_fields:
            value = environment[f"CORELANE_{field.upper()}"]
            if field in GIVEN:
                assert value.startswith(f"${{CORELANE_{field.upper()}:-"), (name, field)
            else:
                # No value: Compose takes it from the environment or .env, and leaves it out where neither has it.
                assert (value is not None) == (field in FIXED), (name, field)
        assert service["env_file"] == [{"path": ".env", "required": False}], name


def test_monitoring_is_a_profile_that_reads_the_repository_and_is_reached_from_this_machine_only() -> None:
    compose = yaml.safe_load(COMPOSE.read_text())
    services = compose["services"]
    assert {name for name, service in services.items() if "profiles" in service} == {"prometheus", "grafana"}
    for name in ("prometheus", "grafana"):
        service = services[name]
        assert service["profiles"] == ["monitoring"]
        assert service["image"].startswith(f"${{{name.upper()}_IMAGE:-"), "named by a variable"
        assert ":latest" not in service["image"], "pinned"
        assert service["healthcheck"]["test"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        for volume in service["volumes"]:
            source, _, mode = volume.partition(":")
            if source.startswith("./"):
                assert (COMPOSE.parent / source).exists(), volume
                assert mode.endswith(":ro"), volume
            else:
                assert source in compose["volumes"], volume


def test_prometheus_scrapes_the_api_under_its_name_in_the_compose_file() -> None:
    config = yaml.safe_load((COMPOSE.parent / "deploy" / "monitoring" / "prometheus.yml").read_text())
    [job] = [job for job in config["scrape_configs"] if job["job_name"] == "corelane"]
    assert [config["targets"] for config in job["static_configs"]] == [["api:8000"]], "one target: sums are shared"
    assert "api" in yaml.safe_load(COMPOSE.read_text())["services"]


if __name__ == "__main__":
    for each in GOLDEN:
        (Path(__file__).parent / "compose" / each).write_text(golden(each))
