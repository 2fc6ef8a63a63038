"""Links to Redis: one for threads, one for coroutines, and the Lua library whose functions both call."""
