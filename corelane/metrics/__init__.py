"""Metrics: what they are called, how a process adds them up, and how they are shown to Prometheus.

One prefix, base units, ``_total`` for what only grows. The store keeps the sums of all processes, so every API process
shows the same numbers, and a process that dies takes none of them along. No label takes text of a caller.
"""
