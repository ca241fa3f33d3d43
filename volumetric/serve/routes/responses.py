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
    """Answer what is asked for as items."""
    serving: Serving = request.app.state.serving
    asked = await body_of(request, ResponseRequest)
    chat = await serving.aside(chat_of, asked)
    try:
        async with present(request.receive):
            found = await conversation_of(serving, chat)
        shape = ResponseShape(
            asked=asked,
            params=found.jobs[0].params,
            model=found.served.name,
            text_of=found.served.text_of,
            form=found.form or AnswerForm(),
        )
        return await complete(request, found.served, found.jobs, shape, stream=bool(asked.stream))
    except RequestError as problem:
        raise in_its_words(problem) from None
