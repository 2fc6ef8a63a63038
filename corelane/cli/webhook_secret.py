"""The secret with which `corelane serve` signs webhooks where none is set: made once, kept in the data folder."""

import base64
import os
import secrets
from contextlib import suppress
from pathlib import Path

from pydantic import SecretStr

from corelane.errors import SetupError

FILE = "webhook-secret"

#: Random bytes of a secret; Standard Webhooks wants 24 to 64.
SECRET_BYTES = 32


def kept_secret(data_dir: Path) -> SecretStr | None:
    """Return the secret in the data folder, if there is one."""
    path = data_dir / FILE
    try:
        text = path.read_text().strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"the webhook secret in {path} cannot be read: {error}") from None
    if not text.startswith("whsec_") or len(text) < len("whsec_") + 24:
        raise SetupError(f"{path} holds no webhook secret (`whsec_…`); put it back, or remove the file for a new one")
    return SecretStr(text)


def new_secret() -> str:
    """Return a new random secret."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def make_secret(data_dir: Path) -> SecretStr:
    """Keep a new secret, readable by this user alone, and return it; or the one of a process that was first."""
    secret = new_secret()
    beside = data_dir / f"{FILE}.{os.getpid()}"
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{secret}\n")
        with suppress(FileExistsError):
            os.link(beside, data_dir / FILE)
    finally:
        beside.unlink(missing_ok=True)
    return kept_secret(data_dir) or SecretStr(secret)
