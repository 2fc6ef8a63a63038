"""Examples shown in the OpenAPI document."""

from fastapi.openapi.models import Example

PASSAGE = "The Eiffel Tower was completed in March 1889 and is 330 metres tall."

JOB_REQUEST_EXAMPLES: dict[str, Example] = {
    "one": Example(
        summary="One question",
        value={"question": "When was the tower completed?", "context": PASSAGE},
    ),
    "many": Example(
        summary="Several questions, two answers each, and a webhook",
        value={
            "items": [
                {"id": "when", "question": "When was the tower completed?", "context": PASSAGE},
                {"id": "height", "question": "How tall is the tower?", "context": PASSAGE},
            ],
            "options": {"top_k": 2},
            "metadata": {"source": "guide"},
            "webhook": {"url": "https://example.com/answers", "events": ["job.completed"]},
        },
    ),
}
