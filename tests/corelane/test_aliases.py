"""Which version of several a job gets: by weight over many keys, always the same for one, and moved only if it must."""

from hypothesis import given
from hypothesis import strategies as st

from corelane.domain.aliases import choose, decode_weights, encode_weights

VERSIONS = st.sampled_from(["qa@1", "qa@2", "qa@3", "other@1"])
WEIGHTS = st.dictionaries(VERSIONS, st.floats(0.01, 1e6), min_size=1)
KEYS = st.text(max_size=40)


def test_ten_percent_of_ten_thousand_keys_are_ten_percent() -> None:
    chosen = [choose({"qa@1": 90, "qa@2": 10}, f"job_{n}") for n in range(10_000)]
    assert 900 <= chosen.count("qa@2") <= 1100


@given(WEIGHTS, KEYS)
def test_key_gets_the_same_version_whatever_the_order_and_scale_of_the_weights(
    weights: dict[str, float], key: str
) -> None:
    scaled = {version: 2 * weight for version, weight in reversed(weights.items())}
    assert choose(weights, key) == choose(scaled, key)


@given(WEIGHTS, VERSIONS, st.floats(0.01, 1e6), KEYS)
def test_only_keys_move_that_go_to_the_version_that_gained(
    weights: dict[str, float], version: str, gain: float, key: str
) -> None:
    more = weights | {version: weights.get(version, 0) + gain}
    assert choose(more, key) in (choose(weights, key), version)


@given(st.dictionaries(VERSIONS, st.sampled_from([0.0, 1.0]), min_size=1), KEYS)
def test_version_without_weight_gets_nothing(weights: dict[str, float], key: str) -> None:
    if any(weights.values()):
        assert weights[choose(weights, key)] == 1


def test_weights_are_read_back_as_they_were_written() -> None:
    for weights in ({"qa@1": 90.0, "qa@2": 10.5}, {"qa@1": 1.0}):
        assert decode_weights(encode_weights(weights)) == weights
    assert decode_weights(encode_weights({"qa@1": 30, "qa@2": 0})) == {"qa@1": 1.0}
