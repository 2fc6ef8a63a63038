"""What Prometheus may see of Corelane, and which alerts then fire: unit tests of the rules, for promtool.

A scenario changes some series of a healthy service. Each alert must fire in a scenario, and exactly those fire that the
scenario names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Series of a service that is well: two cores, 600 items a minute, one sample a minute for three hours.
HEALTHY = {
    'up{job="corelane"}': "1x180",
    'corelane_core_up{core="a/0"}': "1x180",
    'corelane_core_up{core="a/1"}': "1x180",
    'corelane_core_out_of_service{core="a/0"}': "0x180",
    'corelane_core_restarts_total{core="a/0"}': "0x180",
    'corelane_core_batches_total{core="a/0"}': "0+60x180",
    'corelane_core_device_errors_total{core="a/0",kind="memory_corrected"}': "3x180",
    "corelane_open_items": "50x180",
    'corelane_items_total{version="m@1",outcome="succeeded"}': "0+600x180",
    'corelane_items_total{version="m@1",outcome="failed"}': "0+1x180",
    'corelane_tokens_total{version="m@1"}': "0+90000x180",
    'corelane_backlog_seconds{version="m@1"}': "5x180",
    'corelane_http_requests_total{route="/v1/jobs",method="POST",status="202"}': "0+60x180",
    'corelane_http_requests_total{route="/v1/jobs",method="POST",status="429"}': "0+60x180",
    'corelane_promises_total{outcome="kept"}': "0+60x180",
    'corelane_deliveries_total{outcome="delivered"}': "0+60x180",
    "corelane_deliveries_dead": "2x180",
    "corelane_webhook_circuits_open": "0x180",
    'corelane_waiting_seconds{what="webhooks"}': "0x180",
    'corelane_loop_age_seconds{loop="sweeps"}': "1x180",
    'corelane_loop_age_seconds{loop="feeding"}': "1x180",
    "corelane_redis_memory_bytes": "400000000x180",
    "corelane_redis_memory_limit_bytes": "1000000000x180",
}

#: A service that nobody uses: nothing grows.
IDLE = {name: "7x180" for name in HEALTHY if name.endswith('_total"}') or "_total{" in name} | {
    "corelane_open_items": "0x180",
    'corelane_backlog_seconds{version="m@1"}': "0x180",
}

CORE_SERIES = [name for name in HEALTHY if name.startswith("corelane_core_")]

STORE_SERIES = [name for name in HEALTHY if name.startswith("corelane_")]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What differs from a healthy service, series by series (None: it is not there), and the alerts at ``at``."""

    name: str
    changes: Mapping[str, str | None] = field(default_factory=dict)
    fires: frozenset[str] = frozenset()
    at: str = "100m"

    def series(self) -> dict[str, str]:
        """Return every series of this scenario."""
        return {name: values for name, values in (HEALTHY | dict(self.changes)).items() if values is not None}


def fires(*alerts: str) -> frozenset[str]:
    """Return names of alerts without their prefix."""
    return frozenset(f"Corelane{alert}" for alert in alerts)


SCENARIOS = [
    Scenario("all is well"),
    Scenario("nobody asks", IDLE),
    Scenario("nothing was ever asked", dict.fromkeys(IDLE) | {"corelane_open_items": "0x180"}),
    Scenario("the API is down", {'up{job="corelane"}': "1x90 0x90"} | dict.fromkeys(STORE_SERIES), fires("Down")),
    Scenario("the API is not scraped", {'up{job="corelane"}': None} | dict.fromkeys(STORE_SERIES), fires("Down")),
    Scenario("Redis was away for 30 s", {'up{job="corelane"}': "1x99 0 1x80"}),
    Scenario("no worker was started", dict.fromkeys(CORE_SERIES), fires("NoWorkers")),
    Scenario(
        "all cores are lost",
        {'corelane_core_up{core="a/0"}': "1x90 0x90", 'corelane_core_up{core="a/1"}': "1x90 0x90"},
        fires("NoWorkers", "CoreLost"),
    ),
    Scenario("one core is lost", {'corelane_core_up{core="a/1"}': "1x90 0x90"}, fires("CoreLost")),
    Scenario("a core is lost for less than a minute", {'corelane_core_up{core="a/1"}': "1x99 0 1x80"}),
    Scenario(
        "work waits and nothing is answered",
        {
            'corelane_items_total{version="m@1",outcome="succeeded"}': "0+600x80 48000x100",
            'corelane_items_total{version="m@1",outcome="failed"}': "0+1x80 80x100",
            'corelane_tokens_total{version="m@1"}': "0+90000x80 7200000x100",
        },
        fires("NoProgress"),
    ),
    Scenario(
        "work waits and nothing was ever answered",
        {name: None for name in HEALTHY if name.startswith(("corelane_items_", "corelane_tokens_"))},
        fires("NoProgress"),
    ),
    Scenario(
        "one long document is read",
        {
            'corelane_items_total{version="m@1",outcome="succeeded"}': "9x180",
            'corelane_items_total{version="m@1",outcome="failed"}': None,
        },
    ),
    Scenario(
        "requests end with 5xx",
        {'corelane_http_requests_total{route="/v1/jobs",method="POST",status="500"}': "0+10x180"},
        fires("ApiErrors"),
    ),
    Scenario(
        "one request ended with 5xx",
        IDLE | {'corelane_http_requests_total{route="/v1/jobs",method="POST",status="500"}': "0x98 1x80"},
    ),
    Scenario("items fail", {'corelane_items_total{version="m@1",outcome="failed"}': "0+100x180"}, fires("ItemsFail")),
    Scenario("the backlog is long", {'corelane_backlog_seconds{version="m@1"}': "4000x180"}, fires("BacklogLong")),
    Scenario("the backlog was long", {'corelane_backlog_seconds{version="m@1"}': "4000x90 10x90"}),
    Scenario("the backlog grows", {'corelane_backlog_seconds{version="m@1"}': "0+10x180"}, fires("BacklogGrows")),
    Scenario(
        "a version is held by no core",
        {'corelane_backlog_seconds{version="n@1"}': "0x90" + " Inf" * 90},
        fires("VersionNotHeld"),
    ),
    Scenario("the backlog shrinks", {'corelane_backlog_seconds{version="m@1"}': "1790-10x180"}),
    Scenario("promises are missed", {'corelane_promises_total{outcome="late"}': "0+20x180"}, fires("PromisesMissed")),
    Scenario(
        "the errors of a core end its process again and again",
        {'corelane_core_restarts_total{core="a/0"}': "0x90 1 2 3 4 5 6x80"},
        fires("CoreCrashLoop"),
    ),
    Scenario(
        "a core's process is killed again and again",
        {'corelane_core_batches_total{core="a/0"}': "0+60x90 0 60 0 60 0 60 0 60x80"},
        fires("CoreCrashLoop"),
    ),
    Scenario("a core's process was replaced once", {'corelane_core_batches_total{core="a/0"}': "0+60x90 0+60x80"}),
    Scenario(
        "a core is out of service",
        {'corelane_core_out_of_service{core="a/0"}': "0x90 1x90"},
        fires("CoreOutOfService"),
    ),
    Scenario(
        "a device reports errors",
        {'corelane_core_device_errors_total{core="a/0",kind="memory_corrected"}': "3x90 4x90"},
        fires("DeviceErrors"),
    ),
    Scenario(
        "the keeper is gone",
        dict.fromkeys(
            ('corelane_loop_age_seconds{loop="sweeps"}', 'corelane_loop_age_seconds{loop="feeding"}'), "1x90 1+60x90"
        )
        | {'corelane_waiting_seconds{what="sweeps"}': "0x90 0+60x90"},
        fires("LoopStands"),
    ),
    Scenario(
        "one loop stands still",
        {'corelane_loop_age_seconds{loop="feeding"}': "1x80 1+60x100"},
        fires("LoopStands"),
    ),
    Scenario("storage is slow for three minutes", {'corelane_loop_age_seconds{loop="feeding"}': "1x97 1+60x80"}),
    Scenario(
        "nobody posts webhooks", {'corelane_waiting_seconds{what="webhooks"}': "0x90 0+60x90"}, fires("WorkOverdue")
    ),
    Scenario("Redis is nearly full", {"corelane_redis_memory_bytes": "850000000x180"}, fires("RedisMemory")),
    Scenario(
        "Redis has no limit",
        {"corelane_redis_memory_bytes": "850000000x180", "corelane_redis_memory_limit_bytes": "0x180"},
    ),
    Scenario(
        "deliveries fail",
        {
            'corelane_deliveries_total{outcome="failed"}': "0+120x180",
            'corelane_deliveries_total{outcome="dead"}': "0+1x180",
        },
        fires("DeliveriesFail"),
    ),
    Scenario("a webhook is given up", {"corelane_deliveries_dead": "2x90 3x90"}, fires("DeadLetters")),
    Scenario("a dead letter was sent again", {"corelane_deliveries_dead": "2x90 1x90"}),
    Scenario("a host refuses webhooks", {"corelane_webhook_circuits_open": "0x60 1x120"}, fires("CircuitOpen")),
    Scenario("a host refused webhooks for ten minutes", {"corelane_webhook_circuits_open": "0x60 1x10 0x110"}),
]
