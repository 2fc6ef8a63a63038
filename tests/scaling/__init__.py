"""Cores that come and go: in order and by force, by hand and by the autoscaler."""
