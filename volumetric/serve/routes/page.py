"""``GET /``: a page to talk to the server from a browser."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"


@cache
def _page() -> bytes:
    return files("volumetric.serve").joinpath("page.html").read_bytes()


async def page(request: Request) -> Response:
    """Return the page: a single file, which loads nothing from elsewhere."""
    headers = {
        "content-security-policy": _POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }
    return Response(_page(), headers=headers, media_type="text/html")
