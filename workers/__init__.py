"""The worker processes: one per core, and the keeper with its deliveries. Celery starts and supervises them."""
