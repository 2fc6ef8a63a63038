from pathlib import Path

import torch

from corelane.plugins.tune.training.checkpoints import last_checkpoint, write_checkpoint


def state(value: float) -> dict[str, torch.Tensor]:
    return {"weights.0": torch.full((7,), value), "adam.0.step": torch.tensor(value)}


def test_the_last_two_are_kept_and_the_last_is_read(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path) is None
    for step in range(1, 5):
        write_checkpoint(tmp_path, step, state(float(step)), {"step": step, "best": None})
    assert len(list(tmp_path.glob("*"))) == 2
    found = last_checkpoint(tmp_path)
    assert found is not None
    assert found[1] == {"step": 4, "best": None}
    assert torch.equal(found[0]["weights.0"], state(4.0)["weights.0"])


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    for step in (1, 2):
        write_checkpoint(tmp_path, step, state(float(step)), {"step": step})
    last = max(tmp_path.glob("*"))
    last.write_bytes(last.read_bytes()[:100])
    (tmp_path / ".step-00000003.safetensors.new").write_bytes(b"half")
    found = last_checkpoint(tmp_path)
    assert found is not None
    assert found[1] == {"step": 1}
