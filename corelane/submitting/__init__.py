"""The submission service: how the API and the batches make jobs. Each rule of admission stands here, once."""
