"""Limits on what a job holds, whichever way it is sent."""

from collections.abc import Mapping

from corelane.errors import TooLarge
from corelane.jobs import Item
from corelane.settings import Settings


def check_item(settings: Settings, where: str, item: Item) -> None:
    """Refuse a question or passage that is too long; raises TooLarge naming the item."""
    if len(item.question) > settings.max_question_chars:
        raise TooLarge(f"{where}: the question is longer than {settings.max_question_chars:,} characters")
    if item.context is not None and len(item.context) > settings.max_context_chars:
        raise TooLarge(f"{where}: the context is longer than {settings.max_context_chars:,} characters")


def check_contexts(settings: Settings, contexts: Mapping[str, str]) -> None:
    """Refuse shared passages that are too long; raises TooLarge naming the passage."""
    for context_id, text in contexts.items():
        if len(text) > settings.max_context_chars:
            raise TooLarge(f"context {context_id!r} is longer than {settings.max_context_chars:,} characters")
