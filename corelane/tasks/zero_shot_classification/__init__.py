"""Zero-shot classification: which of the caller's own labels fit a text, by a model for natural-language inference."""
