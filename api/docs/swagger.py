"""The page at /docs, Swagger UI from local files (``static/README.md``), and its OpenAPI document."""

import asyncio
from functools import cache
from pathlib import Path

import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

FOLDER = Path(__file__).parent / "static"

#: Addresses are relative, so that the page also works below a proxy's prefix.
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Corelane: the API</title>
<link rel="icon" type="image/png" href="docs/favicon-32x32.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/corelane.js"></script>
</body>
</html>
"""


def add_pages(app: FastAPI) -> None:
    """Serve the page, its files and the OpenAPI document; `/` leads to the page."""

    @cache
    def writing() -> asyncio.Future[bytes]:
        # It takes 0.4 s, so it runs in a thread, once for all requests.
        return asyncio.ensure_future(asyncio.to_thread(lambda: orjson.dumps(app.openapi())))

    async def page(_: Request) -> Response:
        return Response(PAGE, media_type="text/html")

    async def icon(_: Request) -> Response:
        return FileResponse(FOLDER / "favicon-32x32.png", media_type="image/png")

    async def document(_: Request) -> Response:
        return Response(await asyncio.shield(writing()), media_type="application/json")

    async def home(_: Request) -> Response:
        # The address is relative, for services below a proxy's prefix.
        return RedirectResponse("docs")

    app.add_route("/", home, include_in_schema=False)
    app.add_route("/openapi.json", document, include_in_schema=False)
    app.add_route("/docs", page, include_in_schema=False)
    app.add_route("/favicon.ico", icon, include_in_schema=False)
    app.mount("/docs", StaticFiles(directory=FOLDER), name="docs")
