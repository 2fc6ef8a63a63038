"""Text as tokens, for any task: tokenizes, caches contexts, cuts windows, reads long contexts in chunks."""
