"""The console's pages of files, batches and stored contexts."""
