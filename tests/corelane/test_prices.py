"""What a core costs: by the table, by a file of own prices, or by the price that is set."""

import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from corelane.cli.app import make_cli
from corelane.domain.instances import INSTANCES, PRICES_OF
from corelane.domain.prices import (
    Price,
    all_instances,
    core_price,
    cost_per_million,
    host_price,
    read_prices,
)
from corelane.engine.cores import sharing_cores
from corelane.settings import Settings
from corelane.settings.rules import SettingsError

OWN = """
as_of = "2026-11-01"
currency = "EUR"
[instances."inf2.xlarge"]
per_hour = 0.70
[instances.rack-7]
per_hour = 1.20
cores = 8
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "prices.toml"
    path.write_text(OWN)
    return path


def refusal(**given: Any) -> str:
    with pytest.raises(SettingsError) as refused:
        host_price(Settings(**given))
    return str(refused.value)


def test_table_has_the_corrected_sizes_and_a_price_a_core() -> None:
    assert INSTANCES["inf1.24xlarge"].host_gib == 192
    assert (INSTANCES["inf2.8xlarge"].host_gib, INSTANCES["inf2.8xlarge"].device_gib) == (128, 32)
    price = core_price(Settings(instance="inf2.xlarge"), found_cores=99)
    assert price == Price(0.7582 / 2, "USD", "inf2.xlarge", PRICES_OF)
    assert price.cost(3600) == 0.7582 / 2


def test_published_cost_of_a_million_is_found_again() -> None:
    assert round(cost_per_million(0.228, 1180.7), 3) == 0.054
    assert round(cost_per_million(0.110, 1180.7), 3) == 0.026
    assert round(cost_per_million(0.7582, 2674.19), 3) == 0.079
    assert cost_per_million(1, 0) == math.inf


def test_price_that_is_set_goes_before_the_file_and_that_before_the_table(own: Path) -> None:
    from_file = host_price(Settings(instance="inf2.xlarge", prices_file=own))
    assert (from_file.per_hour, from_file.currency, from_file.as_of) == (0.70, "EUR", "2026-11-01")
    given = host_price(Settings(instance="inf2.xlarge", prices_file=own, price_per_hour=3, currency="CHF"))
    assert (given.per_hour, given.currency, given.as_of) == (3, "CHF", None)
    assert core_price(Settings(instance="rack-7", prices_file=own), 1) == Price(0.15, "EUR", "rack-7", "2026-11-01")


def test_host_without_a_type_has_a_price_if_one_is_set_over_the_cores_in_use() -> None:
    assert core_price(Settings(), 4) is None
    assert core_price(Settings(instance="cpu"), 4) is None
    assert core_price(Settings(price_per_hour=2), 4) == Price(0.5, "USD", "cpu")
    assert core_price(Settings(price_per_hour=2, price_cores=8), 4) == Price(0.25, "USD", "cpu")


def test_type_that_is_unknown_is_refused_with_the_names_there_are(own: Path) -> None:
    said = refusal(instance="inf3.xlarge", prices_file=own)
    assert "'inf3.xlarge'" in said
    assert "inf1.xlarge, " in said
    assert "rack-7" in said
    assert "CORELANE_PRICES_FILE" in said


def test_type_without_a_price_asks_for_one() -> None:
    assert "CORELANE_PRICE_PER_HOUR" in refusal(instance="trn2.48xlarge")
    assert core_price(Settings(instance="trn2.48xlarge", price_per_hour=64), 1) == Price(1, "USD", "trn2.48xlarge")


def test_price_of_the_table_is_in_no_other_currency() -> None:
    assert "USD" in refusal(instance="inf2.xlarge", currency="EUR")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('as_of = "2026-11-01"\n[instances.rack]\nper_hour = -1', "instances.rack.per_hour"),
        ("as_of = 3", "as_of"),
        ("not toml", "cannot be read as prices"),
        ('as_of = "2026-11-01"\n[instances.rack]\nper_hour = 1\nprice = 2', "instances.rack.price"),
    ],
)
def test_wrong_file_is_refused_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    assert said in refusal(prices_file=path)
    assert "CORELANE_PRICES_FILE" in refusal(prices_file=tmp_path / "none.toml")


def test_json_is_read_too_and_own_types_join_the_table(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text('{"as_of": "2026-11-01", "instances": {"rack-7": {"per_hour": 1.2, "cores": 8, "vcpu": 16}}}')
    table = all_instances(read_prices(path))
    assert (table["rack-7"].usd_per_hour, table["rack-7"].vcpu) == (1.2, 16)
    assert table["inf2.xlarge"] == INSTANCES["inf2.xlarge"]


@pytest.mark.parametrize("price", [Price(0.3791, "USD", "inf2.xlarge", PRICES_OF), Price(1 / 3, "EUR", "rack-7")])
def test_price_is_stored_whole(price: Price) -> None:
    assert Price.decode(price.encode()) == price
    assert Price.decode("-") is None


def test_workers_of_a_host_share_its_price() -> None:
    assert sharing_cores(Settings(cores=1)) == 1
    assert sharing_cores(Settings(instance="inf2.xlarge", cores=1)) == 1
    assert sharing_cores(Settings(instance="inf1.6xlarge", target="inf1")) == 16
    assert sharing_cores(Settings(instance="inf1.6xlarge", target="inf1", price_cores=4)) == 4


def test_serve_refuses_a_wrong_type_before_it_starts_anything(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        make_cli(), ["serve", "--data", str(tmp_path), "--no-flower"], env={"CORELANE_INSTANCE": "inf3.xlarge"}
    )
    assert done.exit_code == 1
    assert "CORELANE_INSTANCE cannot be 'inf3.xlarge'" in done.output
    assert not (tmp_path / "redis").exists()
