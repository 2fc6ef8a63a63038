"""Feature extraction: a text as a vector."""
