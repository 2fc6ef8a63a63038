"""Tasks: what a kind of work is, one folder each. Nothing else knows what stands in an item or in a result."""
