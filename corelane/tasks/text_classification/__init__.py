"""Text classification: the labels of a text, or of a pair of texts, with their scores."""
