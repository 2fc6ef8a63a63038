"""File batches: how the keeper takes them from their input file to their output file."""
