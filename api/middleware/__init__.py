"""The layers around all routes. Pure ASGI."""
