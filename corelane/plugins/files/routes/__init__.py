"""The routes of files and batches."""
