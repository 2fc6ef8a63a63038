"""The row of ``corelane doctor`` about OpenVINO."""

from importlib.metadata import PackageNotFoundError, version

from corelane.cli.checks import DoctorCheck
from corelane.errors.extras import install_command
from corelane.settings import Settings


def check_openvino(_: Settings) -> DoctorCheck:
    """Report the optional library."""
    try:
        found = f"{version('openvino')}, for artifacts of format openvino"
    except PackageNotFoundError:
        found = f"not installed; `{install_command('openvino')}` lets `corelane compile --questions` try its int8"
    return DoctorCheck("OpenVINO", "ok", found)
