"""The store: the only code that changes a job. All state lives in Redis, under the keys of ``keys``.

Every function of the Lua library (``lua/``) is atomic and may be repeated: a repeated submit finds its job, a repeated
commit finds no lease.
"""
