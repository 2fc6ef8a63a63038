"""Answer questions in this process, without a service, by the call of transformers' pipeline."""
