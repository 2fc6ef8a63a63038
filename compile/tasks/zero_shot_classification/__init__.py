"""Zero-shot classification: classifiers trained for natural-language inference."""
