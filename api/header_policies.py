"""The headers that have browsers treat responses as data, and show the page at /docs and nothing else.

Our own rather than a library's: they never change, and one page has another policy. Encryption, and with it HSTS, is
the proxy's.
"""

from collections.abc import Mapping

#: For everything but the page at /docs: nothing of ours is meant to be shown, framed or sniffed.
STRICT: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}

#: For the page at /docs: its own files and this service, nothing from elsewhere. Swagger UI sets style attributes, and
#: has its icons in its style sheet.
PAGE: Mapping[str, str] = {
    **STRICT,
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
