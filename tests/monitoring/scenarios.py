"""What Prometheus may see of Corelane, and which alerts then fire: unit tests of the rules, for promtool.

A scenario changes some series of a healthy service. Each alert must fire in a scenario, and exactly those fire that the
scenario names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Series of a service that is well: two cores, 600 items a minute, one sample a minute.
HEALTHY = {
    'up{job="corelane"}': "1x80",
    "corelane_store_up": "1x80",
    "corelane_redis_writes": "1x80",
    'corelane_core_failed_models{core="a/0"}': "0x80",
    'corelane_core_up{core="a/0"}': "1x80",
    'corelane_core_up{core="a/1"}': "1x80",
    'corelane_core_out_of_service{core="a/0"}': "0x80",
    'corelane_core_waiting{core="a/0"}': "0x80",
    'corelane_core_restarts_total{core="a/0"}': "0x80",
    'corelane_core_items_total{core="a/0"}': "0+60x80",
    'corelane_core_device_errors_total{core="a/0",kind="hardware"}': "3x80",
    'corelane_core_device_errors_total{core="a/0",kind="mem_ecc_corrected"}': "3x80",
    'corelane_core_device_errors_total{core="a/0",kind="numerical"}': "0+10x80",
    "corelane_min_cores": "1x80",
    "corelane_open_items": "50x80",
    'corelane_items_total{version="m@1",outcome="succeeded"}': "0+600x80",
    'corelane_items_total{version="m@1",outcome="failed"}': "0+1x80",
    'corelane_tokens_total{version="m@1"}': "0+90000x80",
    "corelane_backlog_seconds": "5x80",
    'corelane_version_cores{version="m@1"}': "2x80",
    'corelane_waiting_tokens{version="m@1"}': "9000x80",
    'corelane_paused_tokens{version="m@1"}': "0x80",
    'corelane_paused_seconds{kind="owner"}': "0x80",
    'corelane_http_requests_total{route="/v1/jobs",method="POST",status="202"}': "0+60x80",
    'corelane_http_requests_total{route="/v1/jobs",method="POST",status="429"}': "0+60x80",
    'corelane_deliveries_total{outcome="delivered"}': "0+60x80",
    "corelane_deliveries_dead": "2x80",
    "corelane_webhook_circuits_open": "0x80",
    'corelane_waiting_seconds{what="webhooks"}': "0x80",
    'corelane_loop_age_seconds{loop="sweeps"}': "1x80",
    'corelane_loop_age_seconds{loop="feeding"}': "1x80",
    "corelane_redis_memory_bytes": "400000000x80",
    "corelane_redis_reserved_bytes": "0x80",
    "corelane_redis_memory_limit_bytes": "1000000000x80",
}

#: A service that nobody uses: nothing grows.
IDLE = {name: "7x80" for name in HEALTHY if name.endswith('_total"}') or "_total{" in name} | {
    "corelane_open_items": "0x80",
    "corelane_backlog_seconds": "0x80",
}

CORE_SERIES = [name for name in HEALTHY if name.startswith("corelane_core_")]

STORE_SERIES = [name for name in HEALTHY if name.startswith("corelane_")]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What differs from a healthy service, series by series (None: it is not there), and the alerts at ``at``."""

    name: str
    changes: Mapping[str, str | None] = field(default_factory=dict)
    fires: frozenset[str] = frozenset()
    at: str = "60m"

    def series(self) -> dict[str, str]:
        """Return every series of this scenario."""
        return {name: values for name, values in (HEALTHY | dict(self.changes)).items() if values is not None}


def fires(*alerts: str) -> frozenset[str]:
    """Return names of alerts without their prefix."""
    return frozenset(f"Corelane{alert}" for alert in alerts)


SCENARIOS = [
    Scenario("all is well"),
    Scenario("nobody asks", IDLE),
    Scenario("nothing was ever asked", dict.fromkeys(IDLE) | {"corelane_open_items": "0x80"}),
    Scenario("the API is down", {'up{job="corelane"}': "1x50 0x50"} | dict.fromkeys(STORE_SERIES), fires("Down")),
    Scenario("the API is not scraped", {'up{job="corelane"}': None} | dict.fromkeys(STORE_SERIES), fires("Down")),
    Scenario("the API was away for 30 s", {'up{job="corelane"}': "1x59 0 1x40"}),
    Scenario("Redis is away", dict.fromkeys(STORE_SERIES) | {"corelane_store_up": "1x50 0x50"}, fires("Down")),
    Scenario("Redis was away for 30 s", {"corelane_store_up": "1x59 0 1x40"}),
    Scenario(
        "the disk of Redis is full, so that no heartbeat is kept",
        {
            "corelane_redis_writes": "1x50 0x50",
            'corelane_core_up{core="a/0"}': "1x51 0x50",
            'corelane_core_up{core="a/1"}': "1x51 0x50",
            'corelane_loop_age_seconds{loop="sweeps"}': "1x50 1+60x50",
        },
        fires("RedisDisk"),
    ),
    Scenario(
        "a core cannot load a model", {'corelane_core_failed_models{core="a/0"}': "0x50 1x50"}, fires("ModelFails")
    ),
    Scenario("no worker was started", dict.fromkeys(CORE_SERIES), fires("NoWorkers")),
    Scenario(
        "all cores are lost",
        {'corelane_core_up{core="a/0"}': "1x50 0x50", 'corelane_core_up{core="a/1"}': "1x50 0x50"},
        fires("NoWorkers", "CoreLost"),
    ),
    Scenario(
        "a scaler has stopped all cores",
        IDLE | dict.fromkeys(CORE_SERIES) | {"corelane_min_cores": "0x80"},
    ),
    Scenario(
        "no core comes although work wants one",
        dict.fromkeys(CORE_SERIES) | {"corelane_min_cores": "0x80", "corelane_backlog_seconds": "0x50 5x50"},
        fires("NoWorkers"),
    ),
    Scenario("one core is lost", {'corelane_core_up{core="a/1"}': "1x50 0x50"}, fires("CoreLost")),
    Scenario("a core is lost for less than a minute", {'corelane_core_up{core="a/1"}': "1x59 0 1x40"}),
    Scenario(
        "work waits and nothing is answered",
        {
            'corelane_items_total{version="m@1",outcome="succeeded"}': "0+600x40 24000x100",
            'corelane_items_total{version="m@1",outcome="failed"}': "0+1x40 40x100",
            'corelane_tokens_total{version="m@1"}': "0+90000x40 3600000x100",
        },
        fires("NoProgress"),
    ),
    Scenario(
        "all that waits is paused, so that nothing is answered",
        {
            'corelane_items_total{version="m@1",outcome="succeeded"}': "0+600x40 24000x100",
            'corelane_items_total{version="m@1",outcome="failed"}': "0+1x40 40x100",
            'corelane_tokens_total{version="m@1"}': "0+90000x40 3600000x100",
            "corelane_backlog_seconds": "5x40 0x100",
            'corelane_paused_seconds{kind="owner"}': "0x40 0+60x100",
        },
    ),
    Scenario("all that is open waits for its `not_before`", IDLE | {"corelane_open_items": "50x80"}),
    Scenario("a pause was forgotten", {'corelane_paused_seconds{kind="owner"}': "86000+60x80"}, fires("Paused")),
    Scenario(
        "work waits and nothing was ever answered",
        {name: None for name in HEALTHY if name.startswith(("corelane_items_", "corelane_tokens_"))},
        fires("NoProgress"),
    ),
    Scenario(
        "one long document is read",
        {
            'corelane_items_total{version="m@1",outcome="succeeded"}': "9x80",
            'corelane_items_total{version="m@1",outcome="failed"}': None,
        },
    ),
    Scenario(
        "requests end with 5xx",
        {'corelane_http_requests_total{route="/v1/jobs",method="POST",status="500"}': "0+10x80"},
        fires("ApiErrors"),
    ),
    Scenario(
        "one request ended with 5xx",
        IDLE | {'corelane_http_requests_total{route="/v1/jobs",method="POST",status="500"}': "0x58 1x40"},
    ),
    Scenario("items fail", {'corelane_items_total{version="m@1",outcome="failed"}': "0+100x80"}, fires("ItemsFail")),
    Scenario("the backlog is long", {"corelane_backlog_seconds": "4000x80"}, fires("BacklogLong")),
    Scenario("the backlog was long", {"corelane_backlog_seconds": "4000x50 10x50"}),
    Scenario("the backlog grows", {"corelane_backlog_seconds": "0+10x80"}, fires("BacklogGrows")),
    Scenario(
        "a version is held by no core",
        {
            'corelane_waiting_tokens{version="n@1"}': "0x50 64x90",
            'corelane_paused_tokens{version="n@1"}': "0x140",
            'corelane_version_cores{version="n@1"}': "0x140",
        },
        fires("VersionNotHeld"),
    ),
    Scenario("the backlog shrinks", {"corelane_backlog_seconds": "1790-10x80"}),
    Scenario(
        "the errors of a core end its process again and again",
        {'corelane_core_restarts_total{core="a/0"}': "0x50 1 2 3 4 5 6x40"},
        fires("CoreCrashLoop"),
    ),
    Scenario(
        "a core's process is killed again and again",
        {'corelane_core_items_total{core="a/0"}': "0+60x50 0 60 0 60 0 60 0 60x40"},
        fires("CoreCrashLoop"),
    ),
    Scenario(
        "a core is held by another process for minutes",
        {'corelane_core_waiting{core="a/0"}': "0x50 1 1 0 1 1 1 0 1x40"},
        fires("CoreHeld"),
    ),
    Scenario("a core is held for a minute", {'corelane_core_waiting{core="a/0"}': "0x50 1 0x40"}),
    Scenario("a core's process was replaced once", {'corelane_core_items_total{core="a/0"}': "0+60x50 0+60x40"}),
    Scenario(
        "a core is out of service",
        {'corelane_core_out_of_service{core="a/0"}': "0x50 1x50"},
        fires("CoreOutOfService"),
    ),
    Scenario(
        "a device reports an error of its hardware",
        {'corelane_core_device_errors_total{core="a/0",kind="hardware"}': "3x50 4x50"},
        fires("DeviceErrors"),
    ),
    Scenario(
        "a device corrects many errors",
        {'corelane_core_device_errors_total{core="a/0",kind="mem_ecc_corrected"}': "3x50 3+5x50"},
        fires("DeviceErrors"),
    ),
    Scenario(
        "a device corrects an error",
        {'corelane_core_device_errors_total{core="a/0",kind="mem_ecc_corrected"}': "3x50 4x50"},
    ),
    Scenario(
        "the keeper is gone",
        dict.fromkeys(
            ('corelane_loop_age_seconds{loop="sweeps"}', 'corelane_loop_age_seconds{loop="feeding"}'), "1x50 1+60x50"
        )
        | {'corelane_waiting_seconds{what="sweeps"}': "0x50 0+60x50"},
        fires("LoopStands"),
    ),
    Scenario(
        "one loop stands still",
        {'corelane_loop_age_seconds{loop="feeding"}': "1x40 1+60x100"},
        fires("LoopStands"),
    ),
    Scenario("storage is slow for three minutes", {'corelane_loop_age_seconds{loop="feeding"}': "1x57 1+60x40"}),
    Scenario(
        "nobody posts webhooks", {'corelane_waiting_seconds{what="webhooks"}': "0x50 0+60x50"}, fires("WorkOverdue")
    ),
    Scenario("Redis is nearly full", {"corelane_redis_memory_bytes": "850000000x80"}, fires("RedisMemory")),
    Scenario("Results will fill Redis", {"corelane_redis_reserved_bytes": "450000000x80"}, fires("RedisMemory")),
    Scenario(
        "Redis has no limit",
        {"corelane_redis_memory_bytes": "850000000x80", "corelane_redis_memory_limit_bytes": "0x80"},
    ),
    Scenario(
        "deliveries fail",
        {
            'corelane_deliveries_total{outcome="failed"}': "0+120x80",
            'corelane_deliveries_total{outcome="dead"}': "0+1x80",
        },
        fires("DeliveriesFail"),
    ),
    Scenario("a webhook is given up", {"corelane_deliveries_dead": "2x50 3x50"}, fires("DeadLetters")),
    Scenario("a dead letter was sent again", {"corelane_deliveries_dead": "2x50 1x50"}),
    Scenario("a host refuses webhooks", {"corelane_webhook_circuits_open": "0x20 1x120"}, fires("CircuitOpen")),
    Scenario("a host refused webhooks for ten minutes", {"corelane_webhook_circuits_open": "0x20 1x10 0x110"}),
]
