"""Text as tokens, for any task: tokenizes, caches texts, cuts windows, reads long texts in chunks."""
