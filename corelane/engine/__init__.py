"""The engine: from questions and passages to answers with exact offsets, on one core.

Windows, packing, span search and merging are pure functions over arrays; a Backend runs compiled artifacts. No
Redis, Celery or FastAPI in here.
"""
