"""Files, batches, stored texts, and jobs with input or output by URL, in Redis."""
