"""The HTTP API. Accepts jobs, stores them, reports their state. Never imports torch or the engine."""
