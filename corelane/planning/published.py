"""What an accelerator's core does beside another's, by published figures: for guesses where none was measured. Pure.

All are BERT-base on sequences of 128 tokens. A smaller model gains less from a faster core, as part of each call does
not depend on the model.
"""

from corelane.domain.instances import CPU
from corelane.errors import InvalidInput
from corelane.planning.profile import Profile, ShapeTime

#: Sequences a second of one core, at its best batch.
PER_CORE_PER_S = {CPU: 16.9, "inf1": 1180.7 / 4, "inf2": 2674.19 / 2, "trn1": 3421.57 / 2}

#: Where they are from.
SOURCES = {
    CPU: "8x128 in 473 ms, bf16, one core of an AMD EPYC with AVX-512: benchmarks/models.py",
    "inf1": "inf1.xlarge, batch 6, 1,180.7/s: AWS Neuron documents, benchmarks of Inf1, 2024-09-16",
    "inf2": "inf2.xlarge, batch 8, 2,674.19/s: AWS Neuron documents, benchmarks of Inf2, 2026-02-26",
    "trn1": "trn1.2xlarge, batch 16, 3,421.57/s: AWS Neuron documents, benchmarks of Trn1, 2026-02-26",
}

#: Families with the cores of another.
SAME_CORES = {"trn1n": "trn1"}

#: No batch is guessed to take less, in seconds: the published p50 of one row on Inf2.
LEAST_BATCH_S = 0.001


def family_of(instance: str | None) -> str:
    """Return the family that an instance belongs to; ``cpu`` for a host without an accelerator."""
    family = instance.partition(".")[0] if instance else CPU
    return SAME_CORES.get(family, family)


def guess(profile: Profile, family: str) -> Profile:
    """Return the profile of a core of another family, as published figures suggest; raise InvalidInput without any."""
    own = family_of(profile.instance) if profile.instance or profile.target == "cpu" else profile.target
    if own == family:
        return profile
    for each in (own, family):
        if each not in PER_CORE_PER_S:
            raise InvalidInput(f"nothing was published to guess the speed of {each} from; give a profile of it")
    ratio = PER_CORE_PER_S[own] / PER_CORE_PER_S[family]
    said = f"batches at {1 / ratio:.3g} times the speed of {own}, as BERT-base; not measured"
    if family == CPU:
        return profile.scaled(ratio, instance=CPU, guess=said)
    shapes = [_whole(profile, shape, ratio) for shape in profile.shapes]
    changes = {"shapes": shapes, "flexible_rows": False, "overlaps": True, "cpus": None, "target": "neuron"}
    return profile.model_copy(update={**changes, "instance": family, "guess": said})


def _whole(profile: Profile, shape: ShapeTime, ratio: float) -> ShapeTime:
    """Return the time of a full batch, as an accelerator runs no other."""
    full_s = shape.base_s + shape.row_s * (shape.rows if profile.flexible_rows else 0)
    base_s = max(LEAST_BATCH_S, ratio * full_s)
    return ShapeTime(rows=shape.rows, length=shape.length, base_s=base_s, row_s=0)
