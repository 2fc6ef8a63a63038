"""Examples shown in the OpenAPI document."""

from fastapi.openapi.models import Example

from corelane.domain.texts import text_id

#: A job's body as NDJSON, one JSON value a line. OpenAPI cannot describe the lines in detail.
LINES_SCHEMA = {
    "type": "string",
    "description": "One item a line, as many as the disk takes. The first line may be the job's head instead: all of "
    "this body but `items`.",
    "example": '{"options": {"top_k": 2}}\n{"id": "a", "question": "Who wrote it?", "context": "Ada wrote it."}\n',
}

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
    "dry_run": Example(
        summary="What a job would take, without asking it",
        value={"dry_run": True, "question": "When was the tower completed?", "context": PASSAGE},
    ),
    "stored": Example(
        summary="A question about a passage that was stored before (`PUT /v1/contexts/{id}`)",
        value={"question": "How tall is the tower?", "context_id": text_id(PASSAGE)},
    ),
    "shared": Example(
        summary="Questions about one passage, which is sent once",
        value={
            "contexts": {"tower": PASSAGE},
            "items": [
                {"question": "When was the tower completed?", "context_id": "tower"},
                {"question": "How tall is the tower?", "context_id": "tower"},
            ],
        },
    ),
}
