"""Fixtures of the commands' tests: a stand-in for the service."""

from tests.corelane.conftest import client, make_httpserver, service

__all__ = ["client", "make_httpserver", "service"]
