"""Loops: the work that the keeper and the webhook sender repeat all the time."""
