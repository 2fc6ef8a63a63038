"""Files, batches, and jobs with input or output by URL, in Redis."""
