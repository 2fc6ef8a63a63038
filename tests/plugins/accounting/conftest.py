"""Fixtures of the store's tests."""

from tests.corelane.conftest import bench

__all__ = ["bench"]
