"""Middleware: the layers around every endpoint.

`AccessLog` is the outermost: it normalises the path, gives the request an id, and logs it. `AccessControl` checks the
``Host`` header and the API key, and turns errors into responses. Both are plain ASGI: they add microseconds, and do not
buffer streams.

The check of ``Host`` prevents DNS rebinding (https://en.wikipedia.org/wiki/DNS_rebinding): a web page may let its own
domain resolve to this machine, so that its requests are same-origin, but the browser sends that domain as ``Host``. An
IP address as ``Host`` is safe, because no page can make it resolve elsewhere.
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

access: logging.Logger = logging.getLogger(ACCESS)

_GONE: Final = 499
"""Status of a request whose client has disconnected, as in nginx."""
_ELSEWHERE: Final = re.compile(r"https?://[^/?]*", re.IGNORECASE)
_SLASHES: Final = re.compile(r"/{2,}")
_PORT: Final = re.compile(r":\d*\Z")
_OPEN = ("/health", "/v1/health")
"""Paths that need no key, for load balancers."""
_PAGE = "/"


class AccessLog:
    """Middleware for paths, request ids and the access log.

    Parameters
    ----------
    app : the wrapped application
    serving : its metrics count responses
    paths : paths with separate metrics; others share one label, so that clients cannot fill the memory
    """

    def __init__(self, app: ASGIApp, serving: Serving, paths: Collection[str]) -> None:
        self._app = app
        self._serving = serving
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and log it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), _GONE
        scope["path"] = plain_path(scope["path"])
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
        """Log a request, never its content or its key."""
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


def plain_path(path: str) -> str:
    """Normalise a path.

    A base URL that ends with a slash doubles it, and proxies may request an absolute URL (RFC 9112, 3.2.2).
    """
    path = _SLASHES.sub("/", _ELSEWHERE.sub("", path, count=1) if not path.startswith("/") else path)
    return path.rstrip("/") or "/"


class AccessControl:
    """Middleware that checks host and key, and turns errors into responses.

    Parameters
    ----------
    app : the wrapped application
    serving : its settings apply
    """

    def __init__(self, app: ASGIApp, serving: Serving) -> None:
        self._app = app
        self._serving = serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with an error."""
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
        """Raise `RequestError` for an unknown host, or a missing or wrong key."""
        headers, settings = Headers(scope=scope), self._serving.settings
        if "content-length" in headers and "transfer-encoding" in headers:
            # Against request smuggling: every proxy must see the same boundary between requests.
            raise RequestError(
                400, "Content-Length and Transfer-Encoding exclude each other", code="invalid_http", headers=LAST
            )
        # Browsers always send a Host header. Health checks of load balancers may not.
        host = host_of(headers.get("host", ""))
        if settings.hosts is not None and host and not is_known(host, settings.hosts, addresses=settings.addresses):
            message = f"this server does not answer to the name {host[:100]!r}; --allow-host lets it"
            raise RequestError(403, message, code="unknown_host")
        keys = settings.keys
        if not keys or scope["path"] in _OPEN or scope["path"] == _PAGE or scope["method"] == "OPTIONS":
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        shown = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        # All keys are compared, so that the time does not reveal which one matched.
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
    """Convert an error to a response."""
    if isinstance(error, HTTPException) and error.status_code == 405 and scope["method"] == "OPTIONS":
        return Response(status_code=204, headers={"allow": _allowed(error, "OPTIONS")})
    problem = _problem(error, scope)
    return Response(problem.encoded, problem.status, headers=dict(problem.headers), media_type="application/json")


def _allowed(error: HTTPException, *others: str) -> str:
    """Return the methods that a path allows."""
    return ", ".join(sorted({*(error.headers or {}).get("Allow", "").split(", "), *others} - {""}))


def _problem(error: Exception, scope: Scope) -> RequestError:
    if not isinstance(error, HTTPException):
        return problem_of(error)
    if error.status_code == 404:
        from volumetric.serve.app import PATHS

        return RequestError(
            404, f"unknown path {scope['path'][:200]}; the paths are {', '.join(PATHS)}", code="not_found"
        )
    if error.status_code == 405:
        allowed = _allowed(error)
        message = f"{scope['path']} allows {allowed}, not {scope['method']}"
        return RequestError(405, message, code="method_not_allowed", headers={"allow": allowed})
    return RequestError(error.status_code, error.detail)


def host_of(header: str) -> str:
    """Return the name in a ``Host`` header, without port and brackets, in lower case."""
    name = _PORT.sub("", header) if header.endswith("]") or header.count(":") < 2 or "]" in header else header
    return name.removeprefix("[").removesuffix("]").removesuffix(".").lower()


def is_known(name: str, hosts: Collection[str], *, addresses: bool) -> bool:
    """Whether a server answers to a host name.

    Parameters
    ----------
    hosts : its names, in lower case
    addresses : it also answers to any IP address
    """
    return name in hosts or (addresses and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
