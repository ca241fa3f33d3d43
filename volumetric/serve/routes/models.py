"""``GET /v1/models`` and ``GET /health``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from volumetric.serve.problem import RequestError
from volumetric.serve.serving import json_bytes

if TYPE_CHECKING:
    from volumetric.serve.serving import Serving


async def models(request: Request) -> Response:
    """List the models."""
    serving: Serving = request.app.state.serving
    entries = [served.describe(serving.created, serving.settings) for served in serving.models.values()]
    return Response(json_bytes({"object": "list", "data": entries}), media_type="application/json")


async def model(request: Request) -> Response:
    """Describe a model."""
    serving: Serving = request.app.state.serving
    served = serving.model(request.path_params["name"])
    return Response(json_bytes(served.describe(serving.created, serving.settings)), media_type="application/json")


async def health(request: Request) -> Response:
    """Report readiness: 200, or 503 while the server loads or shuts down, or an engine is dead or hangs."""
    serving: Serving = request.app.state.serving
    serving.check_ready()
    if not all(engine.alive for engine in serving.engines):
        raise RequestError(
            503, "an engine has died; see the server's log for the reason", kind="server_error", code="engine_died"
        )
    seconds = max((engine.stuck for engine in serving.engines), default=0.0)
    if seconds:
        message = f"a device has not answered for {seconds:.0f} s; it seems to hang"
        raise RequestError(503, message, kind="server_error", code="engine_stuck")
    return Response(json_bytes({"status": "ok"}), media_type="application/json")
