"""The hub's most used models, each as a small random network of its real configuration, held against its reference."""
