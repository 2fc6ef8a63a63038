"""What jobs, batches, events, keys and cores are: formats and rules without I/O."""
