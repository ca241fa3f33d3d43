"""``GET /``: a page to talk to the server from a browser."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from volumetric.base.script_page import page_part, source_hash

_IMPORT: Final = re.compile(r"^import .*\n", re.MULTILINE)
"""What parts import stands before them in the page's one script."""


@cache
def _page() -> tuple[bytes, str]:
    """Return the page with the parts that it shares with others, and its policy: only its own script runs."""
    template = files("volumetric.serve").joinpath("page.html").read_text("utf-8")
    text = re.sub(r"/\* ([a-z_]+\.(?:css|js)) \*/\n", lambda name: _IMPORT.sub("", page_part(name[1])), template)
    script = text.partition('<script type="module">')[2].partition("</script>")[0]
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src '{source_hash(script)}'; connect-src 'self'; "
        "form-action 'none'; base-uri 'none'"
    )
    return text.encode(), policy


async def page(request: Request) -> Response:
    """Return the page: a single file, which loads nothing from elsewhere."""
    text, policy = _page()
    headers = {"content-security-policy": policy, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
    return Response(text, headers=headers, media_type="text/html")
