"""From text to arrays: tokenize, cut windows, read long contexts in chunks, cache contexts."""
