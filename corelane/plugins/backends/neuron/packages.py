"""The Neuron packages: how they are imported, and the advice if an import fails."""

from typing import Any

from corelane.errors import SetupError, last_line
from corelane.plugins.backends.neuron.chips import CHIPS, PACKAGE_INDEX
from corelane.plugins.backends.neuron.compiling import tracer

#: PyPI's package torch-neuron is a stub that refuses to be imported, and says this.
STUB = "WRONG PACKAGE"


def import_package(target: str) -> Any:
    """Import the Neuron package for a target. This must precede loading artifacts, as it registers their operations.

    Raises SetupError, which says how to install it.
    """
    try:
        return tracer.import_package(CHIPS[target].package)
    except tracer.TracerRefused as error:
        raise explain_import(target, str(error), error.result["missing"]) from error


def explain_import(target: str, text: str, missing: str | None, pip: str = "pip") -> SetupError:
    """Return the error for a failed import; ``missing`` is the module that was not found, if that was the cause."""
    name = CHIPS[target].package
    package, made_for = name.replace("_", "-"), "inf1" if name == "torch_neuron" else "neuron"
    advice = (
        f"{pip} install --extra-index-url {PACKAGE_INDEX} -c constraints/{made_for}.txt {package}, or use the image of "
        f"deploy/{made_for}.Dockerfile"
    )
    if missing == name:
        return SetupError(f"artifacts for {target} need {package}, which is not installed: {advice}")
    found = f"the installed {package}"
    if text.startswith(tracer.NO_TRACE):
        found += f" {text.removeprefix(tracer.NO_TRACE)} is TorchNeuron, another library of that name without `trace`"
        return SetupError(f"{found}, so it neither makes nor runs artifacts: {advice}")
    if STUB in text:
        found += f" is PyPI's stub of that name, not AWS' package: {pip} uninstall {package}"
        return SetupError(f"{found}, then {advice}")
    return SetupError(f"{package} is installed but does not import: {last_line(text)}")
