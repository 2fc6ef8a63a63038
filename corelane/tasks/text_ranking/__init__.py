"""Text ranking: which of several texts fit a query best, by a cross-encoder."""
