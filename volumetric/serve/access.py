"""Access: what happens to every request first and last: its path is made plain, it gets an id, and the log tells of it.

Plain ASGI: it adds microseconds, and leaves streams alone.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from volumetric.serve.log import ACCESS, request_id, stamp

if TYPE_CHECKING:
    from volumetric.serve.serving import Serving

access = logging.getLogger(ACCESS)

_GONE: Final = 499
"""Status of a request that nobody waits for any more, by the custom of web servers."""
_ELSEWHERE: Final = re.compile(r"https?://[^/?]*", re.IGNORECASE)
_SLASHES: Final = re.compile(r"/{2,}")


class Access:
    """Wraps an application.

    Parameters
    ----------
    app : what answers
    serving : whose figures count answers
    paths : those that figures tell apart; whoever asks for others must not fill the memory with their names
    """

    def __init__(self, app: ASGIApp, serving: Serving, paths: Collection[str]) -> None:
        self._app = app
        self._serving = serving
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, and tell of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), _GONE
        scope["path"] = plain(scope["path"])
        scope.setdefault("state", {})["request_id"] = id = uuid.uuid4().hex
        token = request_id.set(id)

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = id
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            request_id.reset(token)
            self._log(scope, status, time.monotonic() - began)

    def _log(self, scope: Scope, status: int, seconds: float) -> None:
        """Tell of a request: never of what it asked, nor of who may."""
        path = scope["path"] if scope["path"] in self._paths else "other"
        answered = self._serving.answered
        answered[path, status] = answered.get((path, status), 0) + 1
        if access.isEnabledFor(logging.INFO):
            client = scope.get("client")
            told: Mapping[str, object] = {
                "time": stamp(),
                "id": scope["state"]["request_id"],
                "client": client[0] if client else None,
                "method": scope["method"],
                "path": scope["path"][:200],
                "status": status,
                "seconds": round(seconds, 4),
            }
            access.info(json.dumps(told))


def plain(path: str) -> str:
    """Return a path as the application knows it.

    A base URL with a slash at its end makes two of one, and proxies may ask for a whole URL (RFC 9112, 3.2.2).
    """
    path = _SLASHES.sub("/", _ELSEWHERE.sub("", path, count=1) if not path.startswith("/") else path)
    return path.rstrip("/") or "/"
