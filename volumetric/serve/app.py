"""The ASGI application: all endpoints, wrapped in the middleware."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from volumetric.serve.middleware import AccessControl, AccessLog
from volumetric.serve.problem import RequestError
from volumetric.serve.routes.chat import chat
from volumetric.serve.routes.completions import completions
from volumetric.serve.routes.embeddings import embeddings
from volumetric.serve.routes.metrics import metrics
from volumetric.serve.routes.models import health, model, models
from volumetric.serve.routes.page import page
from volumetric.serve.routes.responses import responses
from volumetric.serve.routes.tokens import detokenize, tokenize

if TYPE_CHECKING:
    from volumetric.serve.serving import Serving

_GET: Final = {
    "/v1/models": models,
    "/v1/models/{name:path}": model,
    "/health": health,
    "/metrics": metrics,
}
_POST: Final = {
    "/v1/chat/completions": chat,
    "/v1/completions": completions,
    "/v1/responses": responses,
    "/v1/embeddings": embeddings,
    "/tokenize": tokenize,
    "/detokenize": detokenize,
}
PATHS: Final = (*_POST, *(path for path in _GET if "{" not in path), "/")
"""Endpoints listed in the error for an unknown path."""


def application(serving: Serving) -> Starlette:
    """Return the ASGI application.

    Every path exists with ``/v1`` and without it.

    Parameters
    ----------
    serving : models and settings; the caller starts the engines
    """
    # Errors pass through to `AccessControl`: starlette's handlers would log and re-raise them.
    passed = dict.fromkeys((RequestError, HTTPException), _reraise)
    app = Starlette(
        routes=[*_routes(_GET, ("GET",)), *_routes(_POST, ("POST",)), Route("/", page, methods=["GET"])],
        # CORS headers also go on the responses that `AccessControl` writes for refused requests.
        middleware=[
            Middleware(AccessLog, serving=serving, paths={*_GET, *_POST, *map(_path_alias, (*_GET, *_POST)), "/"}),
            *_cors(serving.settings.origins),
            Middleware(AccessControl, serving=serving),
        ],
        exception_handlers=passed,  # pyright: ignore[reportArgumentType]  (their types have Exception alone)
    )
    app.router.redirect_slashes = False  # paths are plain already
    app.state.serving = serving
    return app


def _routes(table: Mapping[str, Callable[[Request], object]], methods: Sequence[str]) -> list[BaseRoute]:
    routes: list[BaseRoute] = []
    for path, endpoint in table.items():
        routes += [Route(one, endpoint, methods=list(methods)) for one in (path, _path_alias(path))]
    return routes


def _path_alias(path: str) -> str:
    """Return a path without its ``/v1``, or with ``/v1`` if it has none."""
    return path.removeprefix("/v1") if path.startswith("/v1") else f"/v1{path}"


def _cors(origins: Sequence[str]) -> list[Middleware]:
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["*"],
            allow_headers=["*"],
            allow_private_network=True,  # pages of other sites need it in Chrome to reach this machine
            expose_headers=["retry-after", "x-request-id"],
        )
    ]


async def _reraise(request: Request, error: Exception) -> Response:
    """Re-raise the error for `AccessControl`. It is a coroutine because starlette would call a function in a thread."""
    try:
        raise error
    finally:
        del error  # else the error and its frame form a cycle that keeps the request's body alive
