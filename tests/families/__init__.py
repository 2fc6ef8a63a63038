"""Every architecture of transformers that answers questions, as a tiny random model with a tokenizer of its kind."""
