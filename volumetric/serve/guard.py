"""Guard: what stands before all endpoints: who may ask, under which name, and what becomes of errors.

Plain ASGI: it adds microseconds, and leaves streams alone.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from volumetric.serve.hosts import host_of, is_known
from volumetric.serve.problem import LAST, RequestError, problem_of

if TYPE_CHECKING:
    from volumetric.serve.serving import Serving

_OPEN = ("/health", "/v1/health")
"""Paths that need no key: load balancers ask there."""
_PAGE = "/"


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
            told = f"this server does not answer to the name {host[:100]!r}; --allow-host lets it"
            raise RequestError(403, told, code="unknown_host")
        keys = settings.keys
        if not keys or scope["path"] in _OPEN or scope["path"] == _PAGE or scope["method"] == "OPTIONS":
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        shown = given.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        # All are compared, so that the time tells nothing of which one it was.
        found = [hmac.compare_digest(shown.encode(), key.encode()) for key in keys]
        if not any(found):
            raise RequestError(
                401,
                "the API key is missing or wrong: send it as Authorization: Bearer KEY",
                kind="authentication_error",
                code="invalid_api_key",
            )
        number = found.index(True)
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
        told = f"{scope['path']} takes {allowed}, not {scope['method']}"
        return RequestError(405, told, code="method_not_allowed", headers={"allow": allowed})
    return RequestError(error.status_code, error.detail)
