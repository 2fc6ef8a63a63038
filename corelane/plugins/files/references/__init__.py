"""Inputs and outputs of jobs by reference: how the keeper reads items from URLs, and writes results to them."""
