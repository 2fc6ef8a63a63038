"""The engine: from questions and passages to answers with exact offsets, on one core.

A task knows the way from text to rows and from logits to results; a backend runs compiled artifacts; a runner schedules
windows between them. No Redis, Celery or FastAPI in here.
"""
