"""Celery and its Redis transport: the app, the bell message, the workarounds."""
