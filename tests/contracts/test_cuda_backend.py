"""What every Backend promises, on a GPU: collected only where PyTorch finds one."""

from pathlib import Path

import numpy as np
import pytest
import torch

if torch.cuda.is_available():
    from corelane.artifacts import Artifact
    from corelane.engine.backend import Backend, open_backend
    from corelane.engine.cuda import CudaBackend
    from tests.contracts.test_backend import *  # noqa: F403
    from tests.contracts.test_backend import LADDER, close_to, make_batch

    # Rows are fixed in a graph; a batch may have fewer all the same, but the manifest does not say so.
    del test_fewer_rows_than_the_bucket_where_rows_are_flexible  # noqa: F821
    # About the CPU's backend and the lookup.
    del test_sound_digest_of_an_unreadable_module_is_a_failed_load, test_unknown_target_names_those_there_are  # noqa: F821

    @pytest.fixture
    def backend() -> Backend:
        return open_backend("cuda")

    @pytest.fixture(scope="module")
    def tiny_artifact(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
        from compile.build import build
        from corelane.settings import Settings

        settings = Settings(data_dir=tmp_path_factory.mktemp("cuda"))
        return build(str(tiny_model), settings=settings, target="cuda", buckets="4x32,2x64", dtype="fp32")

    def test_batches_in_flight_do_not_touch_each_other(tiny_artifact: Artifact) -> None:
        backend = CudaBackend()
        model = backend.load(tiny_artifact)
        batches = [make_batch(LADDER[0], rows, seed=seed) for seed, rows in enumerate((4, 4, 3, 1, 4))]
        alone = [backend.run(model, batch) for batch in batches]
        tickets = [backend.submit(model, batch) for batch in batches]
        for ticket, expected, batch in zip(tickets, alone, batches, strict=True):
            assert close_to(backend.collect(ticket), expected, batch.rows, 32)
            assert np.isfinite(backend.collect(ticket).start).all()
