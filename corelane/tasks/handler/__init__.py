"""Handlers: any Python class behind the queue. Its items, options and outputs have the forms that it says."""
