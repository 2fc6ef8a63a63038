"""The engine: from items to results, on one core.

A task turns text into rows and logits into results; a backend runs compiled artifacts; a runner schedules windows
between them. It does not use Redis, Celery or FastAPI.
"""
