"""Metrics: their names, how a process adds them up, and how they are shown to Prometheus.

All have one prefix and base units; names of counters end in ``_total``. The store keeps the sums of all processes, so
every API process shows the same numbers, and nothing is lost when a process dies. No label contains a caller's text.
"""
