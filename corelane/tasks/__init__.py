"""Tasks: the kinds of work, one folder each. No code outside these folders knows what an item or a result contains."""
