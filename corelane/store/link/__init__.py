"""Links to Redis: one for threads, one for coroutines, and the scripts that both run."""
