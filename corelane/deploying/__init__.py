"""Deploying: which core of a host is on which device, the files that start a worker for each, and what runs of them."""
