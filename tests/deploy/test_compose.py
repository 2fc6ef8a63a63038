"""Files for Docker Compose. Read, not run: there is no Docker where tests run. `make compose-lab` runs them."""

import re
from pathlib import Path
from typing import Any

import pytest

from corelane import __version__
from corelane.settings import Settings
from tests.deploy.commands import check_command

yaml: Any = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
COMPOSE, MONITORING = ROOT / "docker-compose.yml", ROOT / "deploy" / "monitoring" / "compose.yml"
IMAGES = ("Dockerfile", "deploy/neuron.Dockerfile", "deploy/inf1.Dockerfile")
ADDED = sorted((ROOT / "deploy" / "compose").glob("*.yml"))


def services(path: Path = COMPOSE) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text())["services"])


def test_five_services_and_redis_are_all() -> None:
    assert list(services()) == ["redis", "api", "workers", "keeper", "deliveries", "flower"]
    assert COMPOSE.read_text().count("\n") <= 120


@pytest.mark.parametrize("path", [COMPOSE, MONITORING], ids=lambda path: path.parent.name)
def test_no_container_can_write_its_root_or_gain_rights_or_is_reached_from_elsewhere(path: Path) -> None:
    for name, service in services(path).items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert "cap_add" not in service, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service.get("privileged"), name
        assert all("docker.sock" not in volume for volume in service["volumes"]), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        assert service["healthcheck"]["test"], name


def test_settings_of_env_reach_every_container_and_the_file_fixes_few() -> None:
    for name, service in services().items():
        if name == "redis":
            continue
        assert service["env_file"] == [{"path": ".env", "required": False}], name
        fixed = {variable.removeprefix("CORELANE_").lower() for variable in service["environment"]}
        assert fixed <= set(Settings.model_fields), name
        assert {"redis_url", "data_dir", "host", "port", "health_dir"} <= fixed, name
        check_command(service["command"])


@pytest.mark.parametrize("path", ADDED, ids=lambda path: path.stem)
def test_files_that_are_added_change_the_workers_alone(path: Path) -> None:
    for name, service in services(path).items():
        assert name.startswith("worker"), name
        assert "privileged" not in service, name
        if "command" in service:
            check_command([word.partition(":-")[2].rstrip("}") or word for word in service["command"]])
        for variable in service.get("environment", {}):
            assert not variable.startswith("CORELANE_"), "settings stand in .env"


def test_a_container_for_each_core_has_the_device_of_its_core() -> None:
    workers = {name: each for name, each in services(ROOT / "deploy/compose/core-each.yml").items() if "-" in name}
    for index, worker in enumerate(workers.values()):
        assert worker["command"][-1] == worker["environment"]["NEURON_RT_VISIBLE_CORES"] == str(index)
        assert worker["devices"] == ["/dev/neuron0:/dev/neuron0"]
        # The file's path is relative to the project, as all paths in files that are added.
        assert worker["extends"]["service"] in services(ROOT / worker["extends"]["file"])


@pytest.mark.parametrize("name", IMAGES)
def test_images_are_built_in_stages_and_run_as_a_user_of_their_own(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines()
    bases = [line for line in lines if line.startswith("FROM ")]
    assert bases[-2].endswith(" AS build"), "the last stage has no compilers"
    assert all("${" in base for base in bases), "the base can be pinned"
    assert f"ARG VERSION={__version__}" in lines
    after = lines[lines.index(bases[-1]) :]
    assert "USER 10001:10001" in after
    assert [line for line in after if line.startswith("HEALTHCHECK ")]
    assert not [line for line in after if "pip install" in line]


@pytest.mark.parametrize("name", IMAGES)
def test_what_an_image_copies_is_there_and_reaches_the_build(name: str) -> None:
    text = (ROOT / name).read_text()
    copies = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY ") and "--from" not in line]
    sources = {source for line in copies for source in line}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {Path(line[1:]) for line in ignored if line.startswith("!")}
    assert {"pyproject.toml", "constraints", "models", "corelane", "api", "workers", "compile"} <= sources
    for source in map(Path, sources):
        assert {source, *source.parents} & allowed, f".dockerignore keeps {source} out"
    named = set(re.findall(r"\b(?:constraints|deploy)/[\w./-]*\w", text))
    assert [each for each in sources | named if not (ROOT / each).exists()] == []


def test_the_image_for_inf1_has_the_python_that_runs_its_cores() -> None:
    image = (ROOT / "deploy" / "inf1.Dockerfile").read_text()
    assert f"COPY --from=build /opt/neuron/{Settings().neuron_python} /usr/local/bin/" in image


def test_monitoring_reads_the_repository_and_its_images_are_pinned() -> None:
    volumes = yaml.safe_load(MONITORING.read_text())["volumes"]
    for name, service in services(MONITORING).items():
        assert service["image"].startswith(f"${{{name.upper()}_IMAGE:-"), "named by a variable"
        assert ":latest" not in service["image"], "pinned"
        for volume in service["volumes"]:
            source, _, mode = volume.partition(":")
            if source.startswith("./"):
                assert (ROOT / source).exists(), volume
                assert mode.endswith(":ro"), volume
            else:
                assert source in volumes, volume


def test_prometheus_scrapes_the_api_under_its_name_in_the_compose_file() -> None:
    config = yaml.safe_load((MONITORING.parent / "prometheus.yml").read_text())
    [job] = [job for job in config["scrape_configs"] if job["job_name"] == "corelane"]
    assert [config["targets"] for config in job["static_configs"]] == [["api:8000"]], "one target: sums are shared"
    assert "api" in services()
