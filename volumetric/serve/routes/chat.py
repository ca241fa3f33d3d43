"""``POST /v1/chat/completions``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from volumetric.serve.bodies import body_of
from volumetric.serve.completing import complete
from volumetric.serve.conversing import conversation_of
from volumetric.serve.event_stream import present
from volumetric.serve.fields.chat import ChatRequest
from volumetric.serve.shapes import ChatShape

if TYPE_CHECKING:
    from volumetric.serve.serving import Serving


async def chat(request: Request) -> Response:
    """Answer a conversation."""
    serving: Serving = request.app.state.serving
    asked = await body_of(request, ChatRequest)
    async with present(request.receive):
        found = await conversation_of(serving, asked)
    sizes = [len(job.prompt) for job in found.jobs]
    shape = ChatShape(**found.served.told_of(asked), sizes=sizes, texts=asked.texts, form=found.form)
    return await complete(request, found.served, found.jobs, shape, stream=bool(asked.stream))
