"""The submission service: how the API and the batches make jobs. It has all rules of admission, each once."""
