"""Text as tokens, for any task: tokenize, keep contexts, cut windows, read long contexts in chunks."""
