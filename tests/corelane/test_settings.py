from pathlib import Path

import pytest
from pydantic import ValidationError

from corelane.settings import Settings, read_settings


@pytest.mark.parametrize("secret", ["changeme", "whsec_short", "whsec_CHANGEME" + "A" * 40])
def test_placeholder_secrets_are_refused(secret: str) -> None:
    with pytest.raises(ValidationError, match="whsec_"):
        Settings(webhook_secret=secret)


def test_secrets_mask_themselves() -> None:
    secret = "whsec_" + "A" * 32
    assert secret not in repr(Settings(webhook_secret=secret, flower_password="open-sesame"))
    assert "open-sesame" not in repr(Settings(flower_password="open-sesame"))


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1  # type: ignore[misc]


def test_empty_variable_is_the_same_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORELANE_WEBHOOK_SECRET", "")
    assert Settings().webhook_secret is None


def test_command_line_goes_before_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORELANE_PORT", "9001")
    assert read_settings(port=None).port == 9001
    assert read_settings(port=9002).port == 9002


def test_artifacts_lie_in_the_data_folder_unless_told_otherwise(tmp_path: Path) -> None:
    assert Settings(data_dir=tmp_path).artifact_root == tmp_path.resolve() / "artifacts"
    assert Settings(data_dir=tmp_path, artifacts_dir=tmp_path / "a").artifact_root == tmp_path.resolve() / "a"
