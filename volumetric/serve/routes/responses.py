"""``POST /v1/responses``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from volumetric.serve.answers import AnswerForm
from volumetric.serve.bodies import body_of
from volumetric.serve.completing import complete
from volumetric.serve.event_stream import present
from volumetric.serve.fields.response import ResponseRequest
from volumetric.serve.problem import RequestError
from volumetric.serve.responses.asked import chat_of, in_its_words
from volumetric.serve.responses.shape import ResponseShape
from volumetric.serve.routes.chat import conversation_of

if TYPE_CHECKING:
    from volumetric.serve.serving import Serving


async def responses(request: Request) -> Response:
    """Answer a request with output items."""
    serving: Serving = request.app.state.serving
    body = await body_of(request, ResponseRequest)
    chat = await serving.aside(chat_of, body)
    try:
        async with present(request.receive):
            conversation = await conversation_of(serving, chat)
        shape = ResponseShape(
            body=body,
            params=conversation.jobs[0].params,
            model=conversation.served.name,
            text_of=conversation.served.text_of,
            form=conversation.form or AnswerForm(),
        )
        return await complete(request, conversation.served, conversation.jobs, shape, stream=bool(body.stream))
    except RequestError as problem:
        raise in_its_words(problem) from None
