"""The HTTP API. Takes jobs in, keeps them in the store, tells how they stand. Never imports torch or the engine."""
