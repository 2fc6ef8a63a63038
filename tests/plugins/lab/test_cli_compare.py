import random
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from corelane.cli.app import make_cli
from corelane.plugins.lab.schema import Report
from tests.plugins.lab.reports_for_tests import paired_reports, point_at, report_of


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(make_cli(), ["bench", "compare", *map(str, arguments)])


def written(folder: Path, *reports: Report) -> list[Path]:
    paths = [folder / f"{number}.json" for number in range(len(reports))]
    for path, report in zip(paths, reports, strict=True):
        path.write_text(report.model_dump_json(by_alias=True))
    return paths


def test_comparison_is_printed_and_a_gate_fails_if_b_is_worse(tmp_path: Path) -> None:
    files = written(tmp_path, *paired_reports(random.Random(4), 40, 0.10))
    found = run(*files)
    assert found.exit_code == 0
    assert "real, worse" in found.stdout
    assert run(*files, "--gate").exit_code == 1
    assert run(*reversed(files), "--gate").exit_code == 0


def test_unlike_runs_are_refused_with_each_difference(tmp_path: Path) -> None:
    one = report_of([point_at(20)])
    files = written(tmp_path, one, one.model_copy(update={"way": "job", "hearing": "poll"}))
    found = run(*files)
    assert found.exit_code == 1
    assert "way to submit: item in A, job in B" in found.stderr
    assert "way to hear" in found.stderr
    assert run(*files, "--anyway").exit_code == 0


@pytest.mark.parametrize("content", [b"", b"{}", b'{"schema": "other/1"}'])
def test_file_that_is_no_report_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content)
    found = run(path, path)
    assert found.exit_code == 1
    assert "is no report" in found.stderr
