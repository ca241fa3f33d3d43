"""``POST /tokenize`` and ``POST /detokenize``, with vLLM's fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from volumetric.base.errors import GenerationError
from volumetric.loaders.tokenizer import Tokenizer
from volumetric.serve.bodies import read_body
from volumetric.serve.event_stream import cancel_on_disconnect
from volumetric.serve.fields.chat_request import ChatRequest
from volumetric.serve.fields.token_requests import DetokenizeRequest, TokenizeRequest
from volumetric.serve.problem import bad_request, problem_of
from volumetric.serve.routes.chat import as_data, conversation_ids, template_args
from volumetric.serve.serving import json_bytes, size_of

if TYPE_CHECKING:
    from volumetric.serve.serving import ServedModel, Serving


async def tokenize(request: Request) -> Response:
    """Return the token ids of a text, or of a conversation."""
    serving: Serving = request.app.state.serving
    body = await read_body(request, TokenizeRequest)
    served = serving.model(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise bad_request("send either prompt or messages", param="prompt")
    tokenizer = tokenizer_of(served)
    limit = served.model.info.context
    try:
        if body.prompt is not None:
            async with cancel_on_disconnect(request.receive):
                ids = await serving.run_in_thread(_encode, served, tokenizer, body, limit, size=len(body.prompt))
        else:
            like = ChatRequest(
                messages=body.messages or [],
                chat_template_kwargs=body.chat_template_kwargs,
                add_generation_prompt=body.add_generation_prompt,
            )
            args = template_args(like) | ({"tools": body.tools} if body.tools else {})
            parsed = serving.settings.parse_special if body.parse_special is None else body.parse_special
            async with cancel_on_disconnect(request.receive):
                conversation = await serving.run_in_thread(like.conversation)
                messages, args, _ = await serving.run_in_thread(as_data, served, not parsed, conversation, args)
                size = await serving.run_in_thread(size_of, (messages, args))
                ids = await serving.run_in_thread(conversation_ids, served, messages, args, size=size)
    except GenerationError as error:
        raise problem_of(error, param="messages" if body.prompt is None else "prompt") from None
    answer: dict[str, Any] = {"count": len(ids), "max_model_len": served.model.info.context, "tokens": ids}
    if body.return_token_strs:
        answer["token_strs"] = await serving.run_in_thread(_texts, served, ids)
    return Response(json_bytes(answer), media_type="application/json")


async def detokenize(request: Request) -> Response:
    """Return the text of token ids."""
    serving: Serving = request.app.state.serving
    body = await read_body(request, DetokenizeRequest)
    tokenizer = tokenizer_of(serving.model(body.model))
    try:
        text = await serving.run_in_thread(_decode, tokenizer, body.tokens, size=len(body.tokens))
    except GenerationError as error:
        raise problem_of(error, param="tokens") from None
    return Response(json_bytes({"prompt": text}), media_type="application/json")


def tokenizer_of(served: ServedModel) -> Tokenizer:
    """Return a model's tokenizer. Raises `RequestError` if it has none."""
    if served.model.tokenizer is None:
        raise bad_request(f"{served.name} has no tokenizer", param="model")
    return served.model.tokenizer


def _encode(served: ServedModel, tokenizer: Tokenizer, body: TokenizeRequest, limit: int) -> list[int]:
    text, contents = body.prompt or "", served.model.contents if body.parse_special is False else None
    if contents is None:
        return tokenizer.encode(text, add_special_tokens=body.add_special_tokens, limit=limit)
    return contents.encode(contents.data(text), add_special_tokens=body.add_special_tokens, limit=limit)


def _texts(served: ServedModel, ids: list[int]) -> list[str]:
    return [served.text_of(token) for token in ids]


def _decode(tokenizer: Tokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=False)
