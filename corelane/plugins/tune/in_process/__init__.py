"""Questions answered in this process, without a service: the call of transformers' question-answering pipeline."""
