"""The address by which this machine reaches a server that listens on it."""


def local_url(host: str, port: int) -> str:
    """Return the URL of a server that listens on ``host``, for callers on the same machine."""
    near = reachable(host)
    return f"http://[{near}]:{port}" if ":" in near else f"http://{near}:{port}"


def reachable(host: str) -> str:
    """Return an address of a server that listens on ``host``: loopback, if that stands for all addresses."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # compared only
