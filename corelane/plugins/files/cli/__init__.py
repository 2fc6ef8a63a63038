"""The commands of files, batches and stored texts."""
