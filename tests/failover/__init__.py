"""Redis that fails over: replicas, Sentinels and TLS with real servers."""
