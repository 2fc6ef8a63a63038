"""Prometheus accepts the configuration, and each alert fires when it should, and only then."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from corelane.domain import conditions
from corelane.domain.conditions import LEAST_FAILED, Condition
from tests.monitoring.prometheus import MONITORING, need, rules
from tests.monitoring.scenarios import SCENARIOS, Scenario

RULES = sorted((MONITORING / "rules").glob("*.yml"))

RUNBOOK = Path(__file__).parent.parent.parent / "docs" / "monitoring.md"


def promtool(*argv: str) -> str:
    """Run promtool; returns what it says if it finds something wrong."""
    done = subprocess.run([need("promtool"), *argv], capture_output=True, text=True, timeout=60)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def unit_test(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario as promtool reads it: exactly its alerts fire."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in scenario.series().items()],
        "promql_expr_test": [
            {
                "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": scenario.at,
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(scenario.fires)],
            }
        ],
    }


def test_prometheus_accepts_the_configuration() -> None:
    assert promtool("check", "config", str(MONITORING / "prometheus.yml")) == ""
    assert promtool("check", "rules", "--lint-fatal", *map(str, RULES)) == ""


def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    groups = [unit_test(scenario) for scenario in SCENARIOS]
    tests = {"rule_files": [str(path) for path in RULES], "evaluation_interval": "1m", "tests": groups}
    (tmp_path / "all.yml").write_text(json.dumps(tests))
    if not promtool("test", "rules", str(tmp_path / "all.yml")):
        return
    for scenario in SCENARIOS:  # one by one, to name those that are wrong
        path = tmp_path / "one.yml"
        path.write_text(json.dumps(tests | {"tests": [unit_test(scenario)]}))
        assert promtool("test", "rules", str(path)) == "", scenario.name


CONDITIONS = [each for each in vars(conditions).values() if isinstance(each, Condition)]


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda each: f"{each.alert}-{each.text[:12]}")
def test_each_condition_has_an_alert_with_its_bound(condition: Condition) -> None:
    [expression] = [rule["expr"] for rule in rules("alerts") if rule["alert"] == condition.alert]
    bounds = [condition.bound] if condition.bound else []
    if condition.alert == "CorelaneItemsFail":
        bounds.append(LEAST_FAILED)
    assert all(re.search(rf"> {bound:g}(?![\d.])", expression) for bound in bounds)


def test_each_alert_has_a_scenario_and_a_section_of_the_runbook() -> None:
    names = {rule["alert"] for rule in rules("alerts")}
    assert names == set().union(*(scenario.fires for scenario in SCENARIOS))
    assert names == set(re.findall(r"^### (Corelane\w+)$", RUNBOOK.read_text(), re.MULTILINE))


def test_each_alert_says_how_bad_it_is_and_where_its_section_stands() -> None:
    for rule in rules("alerts"):
        assert rule["labels"]["severity"] in ("critical", "warning"), rule
        assert rule["annotations"]["summary"], rule
        assert rule["annotations"]["runbook_url"] == f"docs/monitoring.md#{rule['alert'].lower()}", rule
