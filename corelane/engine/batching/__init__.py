"""Choose what runs next, and how many rows of it."""
