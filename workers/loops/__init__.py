"""Loops: the work that the keeper and the webhook sender repeat for as long as they live."""
