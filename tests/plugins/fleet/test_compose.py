"""The compose file is what `corelane compose` writes, and hands on every setting.

Read, not run: there is no Docker where tests run. `make compose-lab` runs it.
"""

from pathlib import Path
from typing import Any

import pytest

from corelane import __version__
from corelane.plugins.fleet.compose import compose_file
from corelane.plugins.fleet.layout import Layout
from corelane.settings import Settings

yaml: Any = pytest.importorskip("yaml")

COMPOSE = Path(__file__).parents[3] / "docker-compose.yml"

#: Settings that the file decides: addresses, ports and folders inside a container, and what only commands outside use.
FIXED = {
    *("redis_url", "data_dir", "models_dir", "host", "port", "flower_host", "flower_port", "core", "url", "api_key"),
    *("health_dir", "artifact_cache"),
}

#: Services that are none of ours, with what they read and keep; the others get every setting.
FOREIGN = {"redis", "prometheus", "grafana"}

#: Settings with another default in containers.
GIVEN = {"core_host", "model", "log_level", "auth"}


def test_it_is_the_file_for_two_cpu_cores() -> None:
    written = compose_file(Layout("cpu", 2), Settings.model_fields)
    assert COMPOSE.read_text() == written, "run `.venv/bin/corelane compose --cores 2 --output docker-compose.yml`"


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
