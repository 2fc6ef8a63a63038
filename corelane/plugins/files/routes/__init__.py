"""The routes of files, batches and stored texts."""
