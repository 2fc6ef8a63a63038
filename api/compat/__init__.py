"""The request and answer formats of other services, translated."""
