"""The documented routes: the overview, the history, the audit, bulk actions, failed items."""
