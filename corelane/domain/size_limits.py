"""Limits on what a job holds, whichever way it is sent."""

from collections.abc import Mapping

from corelane.domain.jobs import Item
from corelane.errors import TooLarge
from corelane.settings import Settings


def check_item(settings: Settings, where: str, item: Item) -> None:
    """Refuse a question or passage that is too long.

    Raises TooLarge naming ``where`` it stands, which is empty for the only item of a request, and the setting.
    """
    place = f"{where}: " if where else ""
    if len(item.question) > settings.max_question_chars:
        raise TooLarge(
            f"{place}the question is longer than {settings.max_question_chars:,} characters: shorten it, or have the "
            "operator raise CORELANE_MAX_QUESTION_CHARS"
        )
    if item.context is not None and len(item.context) > settings.max_context_chars:
        raise TooLarge(f"{place}the context is {_too_long(settings)}")


def check_contexts(settings: Settings, contexts: Mapping[str, str]) -> None:
    """Refuse shared passages that are too long; raises TooLarge naming the passage and the setting."""
    for context_id, text in contexts.items():
        if len(text) > settings.max_context_chars:
            raise TooLarge(f"context {context_id!r} is {_too_long(settings)}")


def check_work(settings: Settings, tokens: int) -> None:
    """Refuse a job that would not fit even if nothing else waited; raises TooLarge saying how it can be sent."""
    most, name = min(
        (settings.max_owner_tokens, "CORELANE_MAX_OWNER_TOKENS"),
        (settings.max_outstanding_tokens, "CORELANE_MAX_OUTSTANDING_TOKENS"),
    )
    if tokens > most:
        raise TooLarge(
            f"the job is about {tokens:,} tokens of work, and {most:,} may wait: send it as lines "
            "(application/x-ndjson), which wait in a file and are not bounded, or as several jobs one after the other, "
            f"or have the operator raise {name}"
        )


def _too_long(settings: Settings) -> str:
    return (
        f"longer than {settings.max_context_chars:,} characters: cut it into several passages, or have the operator "
        "raise CORELANE_MAX_CONTEXT_CHARS"
    )
