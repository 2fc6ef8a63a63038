"""Bodies of jobs of questions, as the OpenAPI document shows them."""

from collections.abc import Mapping
from typing import Any

PASSAGE = "The Eiffel Tower was completed in March 1889 and is 330 metres tall."

JOB_EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "one": {
        "summary": "One question",
        "value": {"question": "When was the tower completed?", "context": PASSAGE},
    },
    "many": {
        "summary": "Several questions, two answers each, and a webhook",
        "value": {
            "items": [
                {"id": "when", "question": "When was the tower completed?", "context": PASSAGE},
                {"id": "height", "question": "How tall is the tower?", "context": PASSAGE},
            ],
            "options": {"top_k": 2},
            "metadata": {"source": "guide"},
            "webhook": {"url": "https://example.com/answers", "events": ["job.completed"]},
        },
    },
    "shared": {
        "summary": "Questions about one passage, which is sent once",
        "value": {
            "contexts": {"tower": PASSAGE},
            "items": [
                {"question": "When was the tower completed?", "context_id": "tower"},
                {"question": "How tall is the tower?", "context_id": "tower"},
            ],
        },
    },
}
