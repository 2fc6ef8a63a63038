"""The metrics: added up in processes, counted in the store, shown the same by every process."""
