"""``POST /v1/responses``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from volumetric.serve.bodies import read_body
from volumetric.serve.event_stream import cancel_on_disconnect
from volumetric.serve.fields.response_request import ResponseRequest
from volumetric.serve.output_parser import OutputFormat
from volumetric.serve.problem import RequestError
from volumetric.serve.respond import complete
from volumetric.serve.responses.answer import ResponseAnswer
from volumetric.serve.responses.chat_conversion import chat_of, with_response_names
from volumetric.serve.routes.chat import prepare_chat

if TYPE_CHECKING:
    from volumetric.serve.serving import Serving


async def responses(request: Request) -> Response:
    """Answer a request with output items."""
    serving: Serving = request.app.state.serving
    body = await read_body(request, ResponseRequest)
    chat = await serving.run_in_thread(chat_of, body)
    try:
        async with cancel_on_disconnect(request.receive):
            conversation = await prepare_chat(serving, chat)
        shape = ResponseAnswer(
            body=body,
            params=conversation.jobs[0].params,
            model=conversation.served.name,
            text_of=conversation.served.text_of,
            form=conversation.form or OutputFormat(),
        )
        return await complete(request, conversation.served, conversation.jobs, shape, stream=bool(body.stream))
    except RequestError as problem:
        raise with_response_names(problem) from None
