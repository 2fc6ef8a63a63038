"""What every backend promises, on OpenVINO's graphs, and on a GPU where PyTorch finds one."""

from pathlib import Path

import numpy as np
import pytest
import torch

from compile.build import build
from corelane.artifacts.manifest import Artifact
from corelane.engine.backends.protocol import Backend
from corelane.engine.runner import open_backend
from corelane.plugins.backends.cuda.backend import CudaBackend
from corelane.settings import Settings
from tests.contracts.test_backend import *  # noqa: F403  # each of its tests runs on the cases below
from tests.contracts.test_backend import LADDER, close_to, make_batch

has_gpu = torch.cuda.is_available()


@pytest.fixture(scope="module")
def cuda_artifact(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    settings = Settings(data_dir=tmp_path_factory.mktemp("cuda"))
    return build(str(tiny_model), settings=settings, target="cuda", buckets="4x32,2x64", dtype="fp32")


@pytest.fixture(params=["openvino", *(["cuda"] if has_gpu else [])])  # type: ignore[no-redef]
def case(request: pytest.FixtureRequest) -> tuple[Backend, Artifact]:
    """Return a backend and the artifact it runs."""
    if request.param == "openvino":
        return open_backend("cpu"), request.getfixturevalue("tiny_openvino")
    return open_backend("cuda"), request.getfixturevalue("cuda_artifact")


if has_gpu:

    def test_batches_in_flight_do_not_touch_each_other(cuda_artifact: Artifact) -> None:
        backend = CudaBackend()
        model = backend.load(cuda_artifact)
        batches = [make_batch(LADDER[0], rows, seed=seed) for seed, rows in enumerate((4, 4, 3, 1, 4))]
        alone = [backend.run(model, batch) for batch in batches]
        tickets = [backend.submit(model, batch) for batch in batches]
        for ticket, expected, batch in zip(tickets, alone, batches, strict=True):
            assert close_to(backend.collect(ticket), expected, batch.rows, 32)
            assert np.isfinite(backend.collect(ticket)[0]).all()
