"""Corelane and its peers: the same questions, model, cores and client, one after the other."""
