"""Addresses: how what listens here is reached from this machine."""


def http_url(host: str, port: int) -> str:
    """Where what listens on ``host`` is reached from this machine."""
    near = reachable(host)
    return f"http://[{near}]:{port}" if ":" in near else f"http://{near}:{port}"


def reachable(host: str) -> str:
    """An address of what listens on ``host``: all addresses include loopback."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # compared only
