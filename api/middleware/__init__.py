"""The layers around every route. Pure ASGI."""
