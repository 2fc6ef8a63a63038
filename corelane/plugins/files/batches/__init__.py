"""File batches: how the keeper turns an input file into an output file."""
