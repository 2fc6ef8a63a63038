"""Text ranking: cross-encoders, which give one logit for a query and a text."""
