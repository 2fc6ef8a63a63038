"""Links to Redis: one for threads, one for coroutines, and the library of functions that both call."""
