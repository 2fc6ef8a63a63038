"""The bench: it loads a running service as told, measures it from outside and inside, and checks its answers."""
