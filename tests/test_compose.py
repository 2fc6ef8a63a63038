"""The compose file hands on every setting. Read, not run: there is no Docker where tests run."""

from pathlib import Path
from typing import Any

import pytest

from corelane.settings import Settings

yaml: Any = pytest.importorskip("yaml")

COMPOSE = Path(__file__).parent.parent / "docker-compose.yml"

#: Settings that the file decides: addresses, ports and folders inside a container, and what only commands outside use.
FIXED = {
    *("redis_url", "data_dir", "models_dir", "host", "port", "flower_host", "flower_port", "core", "url", "api_key")
}

#: Services that are none of ours, with what they read and keep; the others get every setting.
FOREIGN = {"redis", "prometheus", "grafana"}

#: Settings with another default in containers.
GIVEN = {"core_host", "model", "log_level", "auth"}


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
