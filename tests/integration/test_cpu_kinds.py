"""Two kinds of CPU in one fleet, each with an artifact of its own of one version: both answer, and say which serves."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import redis
from fastapi.testclient import TestClient

from api.app import create_app
from corelane.artifacts.manifest import Artifact
from corelane.cli.fleet import core_lines
from corelane.domain.dispatch import Core
from corelane.settings import Settings
from tests.tools.artifacts import add_for_kind
from tests.tools.redis import admin_url
from tests.tools.waiting import eventually
from workers.core.drain import drain
from workers.core.process import CoreProcess

#: The kinds of the hosts. The version has an artifact for the first, and one for AVX2 that suits the second best.
AMX, AVX512 = "amx_bf16", "avx512f"


@pytest.fixture
def settings(redis_url: str, tiny_artifact: Artifact, tmp_path: Path) -> Settings:
    with redis.Redis.from_url(admin_url(redis_url)) as client:
        client.flushall()
    add_for_kind(tiny_artifact, tmp_path / "artifacts", "cpu", AMX)
    add_for_kind(tiny_artifact, tmp_path / "artifacts", "cpu-avx2", "avx2")
    return Settings(redis_url=redis_url, data_dir=tmp_path, model="tiny-qa", linger_s=0, heartbeat_s=0.2, lease_s=60)


@pytest.fixture
def cores(settings: Settings, bell: str) -> Iterator[list[CoreProcess]]:
    """Start a core on a host of each kind."""
    with ExitStack() as stack:
        started = []
        for host, kind in (("new", AMX), ("old", AVX512)):
            core = CoreProcess(settings.model_copy(update={"cpu_kind": kind}), Core(host, 0), bell)
            stack.callback(core.close)
            core.start(lambda: False)
            started.append(core)
        yield started


def test_each_core_takes_its_artifact_and_both_answer_for_one_version(
    settings: Settings, cores: list[CoreProcess], tiny_artifact: Artifact
) -> None:
    version = tiny_artifact.manifest.version_id

    def serves(core: CoreProcess) -> bool:
        drain(core, lambda: False)
        return core.versions == [version]

    for core in cores:
        eventually(partial(serves, core))
    with TestClient(create_app(settings)) as api:

        def kinds() -> dict[str, tuple[str, str]]:
            told = api.get("/v1/cores").json()["data"]
            return {each["core"]: (each["cpu_kind"], model["cpu_kind"]) for each in told for model in each["models"]}

        def has_succeeded(job: str) -> bool:
            return bool(api.get(f"/v1/jobs/{job}").json()["status"] == "succeeded")

        eventually(lambda: kinds() == {"new/0": (AMX, AMX), "old/0": (AVX512, "avx2")})
        told = {core["core"]: core for core in api.get("/v1/cores").json()["data"]}
        digests = {model["manifest_sha256"] for core in told.values() for model in core["models"]}
        assert len(digests) == 2
        assert ["chosen for" in line for line in core_lines(told["old/0"]["models"], AVX512)] == [True]
        assert ["chosen for" in line for line in core_lines(told["new/0"]["models"], AMX)] == [False]
        question = {"question": "Who wrote the first program?", "context": "Ada Lovelace wrote the first program."}
        answers = []
        for core in cores:
            job = api.post("/v1/jobs", json={"items": [question]}).json()["id"]
            drain(core, lambda: False)
            eventually(partial(has_succeeded, job))
            assert api.get(f"/v1/jobs/{job}").json()["model"] == version
            answers.append(api.get(f"/v1/jobs/{job}/results").json()["data"][0]["answers"])
        assert answers[0] == answers[1]
