"""What ``corelane doctor`` says of the storage of files: whether it takes, returns and forgets a small file."""

from typing import Literal

from corelane.errors import SetupError, StorageFailed
from corelane.settings import Settings
from corelane.settings.rules import without_password


def examine_storage(settings: Settings) -> tuple[Literal["ok", "fail"], str, str]:
    """Return the state of the storage at a URL, what was found, and what to do about it."""
    from corelane.store.file_storage import open_storage

    if settings.files_url is None:
        return "ok", f"in {settings.files_root}, which API and keeper share", ""
    where = without_password(settings.files_url)
    try:
        open_storage(settings.files_url, settings.files_root).check()
    except SetupError as error:
        return "fail", error.detail, ""
    except StorageFailed as error:
        advice = "CORELANE_FILES_URL, AWS_ENDPOINT_URL_S3 and the credentials must lead to a bucket that may be written"
        return "fail", error.detail, advice
    return "ok", f"{where} takes, returns and deletes files", ""
