"""Jobs, batches, events, keys and cores: their formats and rules, without I/O."""
