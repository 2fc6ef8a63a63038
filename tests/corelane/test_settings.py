from pathlib import Path

import pytest
from pydantic import ValidationError

from corelane.settings import Settings, read_settings, unknown_names
from corelane.settings.names import find_unknown
from corelane.settings.rules import SettingsError, describe, is_secret, without_password


@pytest.mark.parametrize("secret", ["changeme", "whsec_short", "whsec_CHANGEME" + "A" * 40])
def test_placeholder_secrets_are_refused(secret: str) -> None:
    with pytest.raises(ValidationError, match="whsec_"):
        Settings(webhook_secret=secret)


def test_secrets_mask_themselves() -> None:
    secret = "whsec_" + "A" * 32
    assert secret not in repr(Settings(webhook_secret=secret, flower_password="open-sesame"))
    assert "open-sesame" not in repr(Settings(flower_password="open-sesame"))


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


def refused(**values: str) -> list[str]:
    """Return the sentences that refuse settings of the environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(f"CORELANE_{name.upper()}", value)
        with pytest.raises(SettingsError) as caught:
            read_settings()
    return caught.value.sentences


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("port", "99999", "'99999': it takes a whole number from 0 to 65535, for example CORELANE_PORT=8000"),
        ("max_items", "many", "'many': it takes a whole number of 1 or more, for example CORELANE_MAX_ITEMS=10000"),
        ("lease_s", "0", "'0': it takes a number above 1, for example CORELANE_LEASE_S=6"),
        ("webhook_timeout_s", "999", "'999': it takes a number above 0, at most 300, for example "
         "CORELANE_WEBHOOK_TIMEOUT_S=15"),
        ("auth", "on", "'on': it takes one of auto, required, off, for example CORELANE_AUTH=auto"),
        ("webhook_allowed_networks", "10.0.0.1/8", "'10.0.0.1/8': it takes networks as CIDRs, comma-separated, "
         "for example CORELANE_WEBHOOK_ALLOWED_NETWORKS=10.0.0.0/8"),
        ("cors_origins", "app.example.com", "for example CORELANE_CORS_ORIGINS=https://example.com"),
        ("cors_origins", "https://app.example.com/", "without a path"),
        ("allowed_hosts", "http://x", "'http://x': it takes host names without scheme"),
        ("redis_url", "127.0.0.1:6379", "redis://127.0.0.1:6379/0"),
        ("redis_url", "http://127.0.0.1:6379/0", "`redis://`, `rediss://`"),
        ("redis_url", "redis://a/0?ssl_ca_certs=x", "`ssl_ca_certs` needs `rediss://`"),
        ("port", "tcp://10.0.0.7:8000", "Kubernetes sets it for a Service named corelane"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_one_sentence_with_an_example(name: str, value: str, said: str) -> None:
    (sentence,) = refused(**{name: value})
    assert sentence.startswith(f"CORELANE_{name.upper()} cannot be {value!r}: it takes ")
    assert said in sentence


def test_every_wrong_setting_is_told_of_at_once() -> None:
    assert len(refused(port="x", auth="x", webhook_retries_s="1,b", url="x")) == 4


def test_what_the_command_line_gave_is_named_by_its_option() -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings(port=70_000, redis_url="nowhere", data_dir=None)
    first, second = sorted(caught.value.sentences)
    assert first.startswith(
        "--port cannot be '70000': it takes a whole number from 0 to 65535, for example --port 8000"
    )
    assert second.startswith("--redis cannot be 'nowhere'")


def test_no_secret_is_shown_by_a_refusal() -> None:
    said = "".join(refused(webhook_secret="hunter2", redis_url="http://me:hunter2@b@host/0"))
    assert "hunter2" not in said
    assert "http://***@host/0" in said
    assert "hunter2" not in "".join(refused(redis_url="me:hunter2@host:6379"))
    assert without_password("redis://host:1/0") == "redis://host:1/0"


def test_every_setting_says_what_it_takes_and_its_example_is_accepted() -> None:
    for name, field in Settings.model_fields.items():
        wanted, example = describe(name, field)
        assert wanted, name
        if example and not is_secret(field):
            Settings.model_validate({name: example})


def test_mistyped_names_are_found_with_the_nearest_right_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text(
        "CORELANE_PROT=1\nexport CORELANE_MAX_WAIT=5\nCORELANE_PORT=8000\nCORELANE_WHEELS=x\n"
    )
    monkeypatch.setenv("CORELANE_AUHT", "required")
    monkeypatch.setenv("corelane_lease_s", "7")
    found = {each.name: (each.nearest, each.guards) for each in unknown_names()}
    assert found == {
        "CORELANE_AUHT": ("CORELANE_AUTH", True),
        "CORELANE_MAX_WAIT": ("CORELANE_MAX_WAIT_S", False),
        "CORELANE_PROT": ("CORELANE_PORT", False),
    }


def test_a_mistyped_prefix_is_found_and_what_kubernetes_sets_is_left_alone() -> None:
    links = ["CORELANE_SERVICE_HOST", "CORELANE_PORT_8000_TCP_ADDR", "CORELANE_API_SERVICE_HOST", "CORELANE_API_PORT"]
    names = [*links, "CORLANE_AUTH", "CHORELANE_HOSTS", "CORE_HOST", "OTHER_PORT", "CORELANE_FLOWR_PORT"]
    found = {each.name: each.nearest for each in find_unknown(names, Settings.model_fields)}
    assert found == {"CORLANE_AUTH": "CORELANE_AUTH", "CORELANE_FLOWR_PORT": "CORELANE_FLOWER_PORT"}
