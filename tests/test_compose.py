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

#: Settings with another default in containers.
GIVEN = {"core_host", "model", "log_level", "auth"}


def test_every_setting_reaches_every_container() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    for name, service in services.items():
        if name == "redis":
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
