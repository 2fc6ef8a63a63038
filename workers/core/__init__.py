"""The process of one core: it claims work, runs it, commits it, and sends heartbeats."""
