"""Runs that need a Docker engine; not part of the test suite."""
