import pytest

from api.requests import WAIT_PREFERENCE


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("", []),
        ("wait=10", ["10"]),
        ("respond-async, wait=5", ["5"]),
        ("Wait = 7", ["7"]),
        ('wait="3"', ["3"]),
        ("wait=soon", []),
        ("await=9", []),
        ("wait=1e9", []),
        ("wait=99999999", []),
    ],
)
def test_preference_to_wait_is_read_or_ignored(header: str, seconds: list[str]) -> None:
    assert WAIT_PREFERENCE.findall(header) == seconds
