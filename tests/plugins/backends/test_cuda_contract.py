"""What the GPU's backend promises besides: collected only where PyTorch finds a GPU."""

import numpy as np
import torch

if torch.cuda.is_available():
    from corelane.artifacts.manifest import Artifact
    from corelane.plugins.backends.cuda.backend import CudaBackend
    from tests.contracts.test_backend import LADDER, close_to, cuda_artifact, make_batch

    __all__ = ["cuda_artifact"]

    def test_batches_in_flight_do_not_touch_each_other(cuda_artifact: Artifact) -> None:
        backend = CudaBackend()
        model = backend.load(cuda_artifact)
        batches = [make_batch(LADDER[0], rows, seed=seed) for seed, rows in enumerate((4, 4, 3, 1, 4))]
        alone = [backend.run(model, batch) for batch in batches]
        tickets = [backend.submit(model, batch) for batch in batches]
        for ticket, expected, batch in zip(tickets, alone, batches, strict=True):
            assert close_to(backend.collect(ticket), expected, batch.rows, 32)
            assert np.isfinite(backend.collect(ticket).start).all()
