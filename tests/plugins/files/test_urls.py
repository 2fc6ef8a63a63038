"""References: which URLs a caller may name, and what of them is shown."""

import pytest

from corelane.domain.job_references import without_query
from corelane.plugins.files.references.urls import (
    S3Object,
    format_of,
    is_allowed,
    is_packed,
    is_reference,
    parse_s3,
)
from corelane.settings import Settings, read_settings
from corelane.settings.rules import SettingsError

ALLOWED = ("s3://inbox/all/", "s3://own/{owner}/", "https://data.example.com/x/", "http://*/open/")


@pytest.mark.parametrize(
    "url",
    [
        "s3://inbox/all/a.ndjson",
        "s3://inbox/all/deep/er/a b.ndjson".replace(" ", "%20"),
        "s3://own/ada/a",
        "https://data.example.com/x/a.json.gz?X-Amz-Signature=1",
        "https://DATA.example.com/x/a",
        "https://DATA.example.com/x/50%25 of;v=1/a..b".replace(" ", "_"),
        "http://10.0.0.1:9000/open/a",
    ],
)
def test_url_with_an_allowed_beginning_is_taken(url: str) -> None:
    assert is_allowed(url, ALLOWED, "ada")


@pytest.mark.parametrize(
    "url",
    [
        "s3://inbox/al/a",
        "s3://inbox/all/",
        "s3://inbox/all",
        "s3://inbox/all/../secret",
        "s3://inbox/all/%2e%2e/secret",
        "s3://inbox/all/%252e%252e/secret",
        "https://data.example.com/x/..;a=1/y",
        "https://data.example.com/x/%25252e%25252e/y",
        "s3://inbox/all/%25252e%25252e/secret",
        "s3://inbox/all/..;/secret",
        "s3://inbox/all/%2e%2e%3bx/secret",
        "s3://inbox/all/..%00/secret",
        "s3://inbox/all/a%0d%0ab",
        "s3://inbox/all/a::file:",
        "s3://inbox/all/a%3A%3Afile:",
        "s3://inbox/all/a?versionId=1",
        "s3://own/bob/a",
        "s3://own/ada/../bob/a",
        "s3://inbox.evil/all/a",
        "https://data.example.com/xy/a",
        "https://data.example.com.evil.org/x/a",
        "https://data.example.com@evil.org/x/a",
        "https://data.example.com:444/x/a",
        "https://data.example.com/x/../a",
        "https://data.example.com/x/%2E%2e/a",
        "https://data.example.com/x\\..\\a",
        "https://data.example.com/x/..;/a",
        "https://data.example.com/x/%252e%252e/a",
        "https://data.example.com/x/..%00/a",
        "http://data.example.com/x/a",
        "http://10.0.0.1/a",
        "http://[x/open/a",
        "http://exa\u2100mple.com/open/a",
        "file:///etc/passwd",
        "simplecache::s3://inbox/all/a",
        "s3://inbox/all/a::file:///etc/passwd#x",
        "memory://inbox/all/a",
        "s3://inbox/all/" + "a" * 5000,
    ],
)
def test_any_other_url_is_refused(url: str) -> None:
    assert not is_allowed(url, ALLOWED, "ada")


def test_nothing_is_allowed_by_default() -> None:
    assert not is_allowed("s3://inbox/all/a", Settings().input_urls, "ada")
    assert Settings().output_urls == Settings().reference_allowed_networks == ()


def test_owner_cannot_leave_their_own_folder_by_their_name() -> None:
    assert not is_allowed("s3://own/../inbox/a", ALLOWED, "..")
    assert is_allowed("s3://own/a%2Fb/c", ALLOWED, "a/b")
    assert not is_allowed("s3://own/a/b/c", ALLOWED, "a/b")


def test_query_is_never_shown() -> None:
    assert without_query("https://x.org/a?X-Amz-Signature=secret") == "https://x.org/a"


def test_name_says_format_and_packing() -> None:
    names = ("s3://bbb/a.json", "s3://bbb/a.json.gz", "https://x.org/a.jsonl.gz?b=.json", "s3://bbb/a")
    assert [format_of(name) for name in names] == ["json", "json", "ndjson", "ndjson"]
    assert [is_packed(name) for name in names] == [False, True, True, False]
    assert parse_s3(names[0]) == S3Object("bbb", "a.json")
    assert is_reference(names[2])


@pytest.mark.parametrize("value", ["s3://bucket", "s3://bucket/a", "s3://bbb/../", "ftp://x/", "https://x.org/a", "*"])
def test_setting_takes_beginnings_that_end_with_a_slash(value: str) -> None:
    with pytest.raises(SettingsError, match="beginnings of s3, https or http URLs"):
        read_settings(input_urls=value)
