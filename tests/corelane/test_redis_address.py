"""A URL of Redis says where it is: one server, a socket file, or the primary that Sentinels name."""

import pytest

from corelane.broker.app import celery_broker
from corelane.settings.address import AddressRefused, RedisAddress, read_address


def test_plain_urls_are_taken_as_they_are() -> None:
    for url, db, is_tls in (
        ("redis://h", "0", False),
        ("redis://u:p@h:1/3", "3", False),
        ("redis://h?db=2", "2", False),
        ("unix:///run/redis.sock?db=4", "4", False),
        ("rediss://h/1?ssl_cert_reqs=none", "1", True),
    ):
        address = read_address(url)
        assert (address.url, address.db, address.is_tls, address.sentinels) == (url, db, is_tls, ())


def test_sentinels_have_hosts_ports_and_a_login_of_their_own() -> None:
    url = (
        "rediss+sentinel://me:p%40ss@a,[::1]:7,c:26380/main/2?ssl_ca_certs=/ca&sentinel_username=s&sentinel_password=w"
    )
    assert read_address(url) == RedisAddress(
        "rediss://me:p%40ss@main/2?ssl_ca_certs=%2Fca",
        (("a", 26379), ("::1", 7), ("c", 26380)),
        "main",
        ("s", "w"),
        {"ssl_ca_certs": "/ca"},
    )
    assert read_address("redis+sentinel://a/main").db == "0"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis+sentinel://a:1,b:2", "name of the primary"),
        ("redis+sentinel://a:1/main/x", "name of the primary"),
        ("redis+sentinel://a:1,/main", "a Sentinel is named"),
        ("redis+sentinel://a:0/main", "a Sentinel is named"),
        ("redis://h/0?ssl_ca_certs=x", "needs `rediss://`"),
        ("redis://h/0?protocol=3", "not known"),
        ("redis://h/0?sentinel_password=x", "not known"),
        ("rediss://h/0?ssl_cert_reqs=maybe", "required, optional, none"),
        ("unix://host/file", "socket file"),
        ("unix://", "socket file"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_with_a_reason(url: str, why: str) -> None:
    with pytest.raises(AddressRefused, match=why):
        read_address(url)


@pytest.mark.parametrize("url", ["http+sentinel://a/main", "http://h", "redis://h:0", "redis://h/main", "h:1"])
def test_what_is_no_redis_at_all_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"Redis|port"):
        read_address(url)


def test_celery_and_flower_are_told_in_their_own_words() -> None:
    assert celery_broker("redis://u:p@h:1/3").url == "redis://u:p@h:1/3"
    assert celery_broker("unix:///run/r.sock?db=2&password=p@").url == "redis+socket://:p%40@/run/r.sock?virtual_host=2"
    tls = celery_broker("rediss://:p@h/1?ssl_ca_certs=/ca&ssl_check_hostname=false")
    assert (tls.url, tls.tls) == (
        "rediss://:p@h/1",
        {"ssl_ca_certs": "/ca", "ssl_check_hostname": False, "ssl_cert_reqs": 2},
    )
    found = celery_broker("redis+sentinel://:p@a:1,b:2/main/1?sentinel_password=w")
    assert (found.url, found.options) == (
        "sentinel://:p@a:1/1",
        {"master_name": "main", "sentinel_kwargs": {"password": "w"}},
    )
