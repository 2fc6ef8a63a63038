"""Translations of other services' request and answer formats."""
