"""The commands of files and batches."""
