"""Corelane: queue-driven, asynchronous batch inference for extractive question answering.

This package holds what the API, the workers and the compiler share. Floors, from the ground up: errors,
settings, log, metrics; then jobs, lanes, artifacts; then store, broker, webhooks, client; then engine; the roof
is cli. Imports point down only.
"""

__version__ = "0.1.0"
