"""The chat template of a model that ranks: what it writes around a query and a text, and how that becomes tokens.

sentence-transformers writes both into one text and tokenizes that. Corelane tokenizes the query, and each text, apart.
So what is written around a text is cut where the tokenizer would cut it behind any query and before any text.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any

from corelane.errors import ModelRefused, first_line

#: Settings that are no arguments of the template.
NOT_READ = {"format", "restore_suffix", "padding", "truncation", "max_length", "return_tensors"}

#: Marks that take the place of a query and of a text when we read a template.
MARKS = ("\ue000query\ue000", "\ue000text\ue000")

#: Queries and texts whose first or last characters might be joined to what is written around them.
PROBES = (
    *("", "a", "Who is it?", "12", " before", "behind ", "\n", "a line\n", "\tthen\r\n", "  two  ", "(so)", '"said"'),
    *(
        ": it",
        "...",
        "'s",
        "don't",
        "é",
        "e\u0301",
        "\u0301x",
        "東京",
        "مرحبا",
        "👍🏿",
        "\u200b",
        "\u00a0",
        "</s>",
        "<|im_end|>",
    ),
)


def write(fast: Any, settings: Mapping[str, Any], prompt: str | None, query: str, text: str) -> str:
    """Write a query and a text as sentence-transformers does; a template can fail in any way.

    ``settings`` are the arguments of the template, and as ``format`` how it takes messages.
    """
    flat = settings.get("format") == "flat"
    messages = [
        {"role": role, "content": said if flat else [{"type": "text", "text": said}]}
        for role, said in (("system", prompt), ("query", query), ("document", text))
        if role != "system" or said
    ]
    options = {name: value for name, value in settings.items() if name not in NOT_READ}
    return str(fast.apply_chat_template(messages, tokenize=False, **options))


def takes_pairs(fast: Any) -> bool:
    """Return whether the chat template of a tokenizer writes both a query and a text, in either form of messages."""
    for form in ("flat", "structured"):
        with suppress(Exception):
            one, *others = (write(fast, {"format": form}, None, *pair) for pair in ("ab", "cb", "ad"))
            if one not in others:
                return True
    return False


def read_chat(label: str, fast: Any, settings: Mapping[str, Any], prompt: str | None) -> dict[str, Any]:
    """Return the words around a query and a text, and the tokens behind them; raise ModelRefused if that is unclear."""
    written, pairs = partial(write, fast, settings, prompt), list(product(PROBES, PROBES))
    try:
        parts = re.split("|".join(MARKS), written(*MARKS))
        before, between, after = parts if len(parts) == 3 else ("", "", "")
        if any(written(*pair) != before + pair[0] + between + pair[1] + after for pair in (MARKS, *pairs)):
            raise ValueError("it changes them")
    except Exception as error:
        # A template can fail in any way.
        raise ModelRefused(
            f"the chat template of {label} does not write a message of the role `query` and then one of `document`, "
            f"each once and as it is: {first_line(error)}"
        ) from None

    def tokens(text: str) -> list[int]:
        found: list[int] = fast(text, add_special_tokens=False)["input_ids"]
        return found

    wholes = [(query, text, tokens(before + query + between + text + after)) for query, text in pairs]
    for cut, tail in product(range(len(between), -1, -1), range(max(1, len(after)))):
        behind = tokens(after[tail:])
        if all(
            tokens(before + query + between[:cut]) + tokens(between[cut:] + text + after[:tail]) + behind == whole
            for query, text, whole in wholes
        ):
            words = {"before": before, "between": between[:cut], "lead": between[cut:], "tail": after[:tail]}
            return words | {"after": behind}
    raise ModelRefused(f"the tokenizer of {label} joins a text to its chat template in a way Corelane does not know")
