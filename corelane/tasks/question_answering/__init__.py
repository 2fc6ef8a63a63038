"""Extractive question answering: a question, and the stretch of a passage that answers it."""
