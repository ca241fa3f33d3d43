"""Middleware: what every request passes before and behind its endpoint.

`Access` is first and last: it makes the path plain, gives the request an id, and logs it. `Guard` asks under which name
and with which key a request comes, and turns errors into answers. Both are plain ASGI: they add microseconds, and leave
streams alone.

A web page may let its own name point to this machine, and then asks here as if it were of the same origin; but the
browser tells that name (https://en.wikipedia.org/wiki/DNS_rebinding). An address in the place of a name points to
nothing else, so no page can have it as its own.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import re
import time
import uuid
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from volumetric.serve.log import ACCESS, request_id, stamp
from volumetric.serve.problem import LAST, RequestError, problem_of

if TYPE_CHECKING:
    from volumetric.serve.serving import Serving

access = logging.getLogger(ACCESS)

_GONE: Final = 499
"""Status of a request that nobody waits for any more, by the custom of web servers."""
_ELSEWHERE: Final = re.compile(r"https?://[^/?]*", re.IGNORECASE)
_SLASHES: Final = re.compile(r"/{2,}")
_PORT: Final = re.compile(r":\d*\Z")
_OPEN = ("/health", "/v1/health")
"""Paths that need no key: load balancers ask there."""
_PAGE = "/"


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
            fields: Mapping[str, object] = {
                "time": stamp(),
                "id": scope["state"]["request_id"],
                "client": client[0] if client else None,
                "method": scope["method"],
                "path": scope["path"][:200],
                "status": status,
                "seconds": round(seconds, 4),
            }
            access.info(json.dumps(fields))


def plain(path: str) -> str:
    """Return a path as the application knows it.

    A base URL with a slash at its end makes two of one, and proxies may ask for a whole URL (RFC 9112, 3.2.2).
    """
    path = _SLASHES.sub("/", _ELSEWHERE.sub("", path, count=1) if not path.startswith("/") else path)
    return path.rstrip("/") or "/"


class Guard:
    """Wraps an application.

    Parameters
    ----------
    app : what answers
    serving : whose settings count
    """

    def __init__(self, app: ASGIApp, serving: Serving) -> None:
        self._app = app
        self._serving = serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer in its place."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            return
        except Exception as error:
            answer = _answer(error, scope)
            if not begun:
                await answer(scope, receive, sending)

    def _check(self, scope: Scope) -> None:
        """Raise `RequestError` for a name that is not ours, or without the key."""
        headers, settings = Headers(scope=scope), self._serving.settings
        if "content-length" in headers and "transfer-encoding" in headers:
            # Where one request ends, and another one begins, must be the same for all who pass it on.
            raise RequestError(
                400, "Content-Length and Transfer-Encoding exclude each other", code="invalid_http", headers=LAST
            )
        # Who tells no name is no browser: load balancers ask for health so.
        host = host_of(headers.get("host", ""))
        if settings.hosts is not None and host and not is_known(host, settings.hosts, addresses=settings.addresses):
            message = f"this server does not answer to the name {host[:100]!r}; --allow-host lets it"
            raise RequestError(403, message, code="unknown_host")
        keys = settings.keys
        if not keys or scope["path"] in _OPEN or scope["path"] == _PAGE or scope["method"] == "OPTIONS":
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        shown = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        # All are compared, so that the time tells nothing of which one it was.
        matches = [hmac.compare_digest(shown.encode(), key.encode()) for key in keys]
        if not any(matches):
            raise RequestError(
                401,
                "the API key is missing or wrong: send it as Authorization: Bearer KEY",
                kind="authentication_error",
                code="invalid_api_key",
            )
        number = matches.index(True)
        scope["state"]["owner"] = f"key {number}", list(keys.values())[number]


def _answer(error: Exception, scope: Scope) -> Response:
    """Return what is answered in the place of an error."""
    if isinstance(error, HTTPException) and error.status_code == 405 and scope["method"] == "OPTIONS":
        return Response(status_code=204, headers={"allow": _allowed(error, "OPTIONS")})
    problem = _problem(error, scope)
    return Response(problem.encoded, problem.status, headers=dict(problem.headers), media_type="application/json")


def _allowed(error: HTTPException, *others: str) -> str:
    """Return the methods that a path takes."""
    return ", ".join(sorted({*(error.headers or {}).get("Allow", "").split(", "), *others} - {""}))


def _problem(error: Exception, scope: Scope) -> RequestError:
    if not isinstance(error, HTTPException):
        return problem_of(error)
    if error.status_code == 404:
        from volumetric.serve.app import PATHS

        return RequestError(
            404, f"there is no {scope['path'][:200]} here; there is: {', '.join(PATHS)}", code="not_found"
        )
    if error.status_code == 405:
        allowed = _allowed(error)
        message = f"{scope['path']} takes {allowed}, not {scope['method']}"
        return RequestError(405, message, code="method_not_allowed", headers={"allow": allowed})
    return RequestError(error.status_code, error.detail)


def host_of(header: str) -> str:
    """Return the name in a ``Host`` header: without a port and brackets, in small letters."""
    name = _PORT.sub("", header) if header.endswith("]") or header.count(":") < 2 or "]" in header else header
    return name.removeprefix("[").removesuffix("]").removesuffix(".").lower()


def is_known(name: str, hosts: Collection[str], *, addresses: bool) -> bool:
    """Whether a server answers to a name.

    Parameters
    ----------
    hosts : the names that it has, in small letters
    addresses : it answers to any address, too
    """
    return name in hosts or (addresses and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
