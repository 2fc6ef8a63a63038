"""The pipeline in this process."""
