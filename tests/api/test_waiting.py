import pytest

from api.requests import preferred_wait


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("", None),
        ("wait=10", 10),
        ("respond-async, wait=5", 5),
        ("Wait = 7", 7),
        ('wait="3"', 3),
        ("wait=soon", None),
        ("await=9", None),
        ("wait=1e9", None),
        ("wait=99999999", None),
    ],
)
def test_preference_to_wait_is_read_or_ignored(header: str, seconds: float | None) -> None:
    assert preferred_wait(header) == seconds
