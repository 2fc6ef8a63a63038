"""The commands ``corelane files``, ``batches`` and ``contexts``."""
