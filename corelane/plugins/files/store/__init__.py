"""Files, batches, stored contexts, and jobs with input or output by URL, in Redis."""
