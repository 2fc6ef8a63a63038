"""Secrets with which owners sign their webhooks: their form, and how callers see them."""

import base64
import secrets
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from corelane.domain.ids import iso_time

#: Random bytes of a secret; Standard Webhooks wants 24 to 64.
SECRET_BYTES = 32

#: The id of the service's secret in an owner's list.
SERVICE = "service"

#: How long earlier secrets still sign along with a new one, in seconds: a day by default to change all receivers, a
#: month at most.
OVERLAP_S, LONGEST_OVERLAP_S = 24 * 3600, 30 * 24 * 3600

#: Most secrets of an owner that sign at a time: each adds a signature to a header of every event.
MOST_SECRETS = 5


def new_secret() -> str:
    """Return a new random secret, whsec_…"""
    return "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


@dataclass(frozen=True, slots=True)
class OwnedSecret:
    """A secret that signs an owner's webhooks; ``value`` is empty for the service's secret."""

    id: str
    created_ms: int | None
    #: Time from which the secret does not sign any more; None if it stays.
    ends_ms: int | None = None
    value: str = field(default="", repr=False)

    def describe(self) -> "WebhookSecret":
        """Return the secret as callers see it."""
        created, ends = (None if ms is None else iso_time(ms) for ms in (self.created_ms, self.ends_ms))
        return WebhookSecret(id=self.id, created_at=created, ends_at=ends)


class WebhookSecret(BaseModel):
    """A secret that signs an owner's webhooks, without its value."""

    object: Literal["webhook_secret"] = "webhook_secret"
    id: str = Field(description="`whs_0…`; `service` for the secret of the service.")
    created_at: str | None = Field(description="null for the secret of the service.")
    ends_at: str | None = Field(description="When it signs no longer; null if it stays.")


class NewWebhookSecret(WebhookSecret):
    """A secret that was just made; its value is shown this once."""

    secret: str = Field(description="`whsec_…`: give it to your receivers. It is never shown again.")


class WebhookSecretList(BaseModel):
    """The secrets that sign an owner's webhooks now, the newest first."""

    object: Literal["list"] = "list"
    data: list[WebhookSecret]


class Overlap(BaseModel):
    """The time for which the former secret signs along with a new one."""

    model_config = ConfigDict(extra="forbid")

    overlap_s: int = Field(
        OVERLAP_S,
        ge=0,
        le=LONGEST_OVERLAP_S,
        description="Seconds for which what signed until now signs as well; 0 ends it at once.",
    )
