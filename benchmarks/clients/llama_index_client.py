"""llama-index (openai-like): chats, streams, completions, tools, structured answers, responses."""

from __future__ import annotations

from typing import Any

from cases import (
    CHAT,
    GREEDY,
    QUESTION,
    TOKENS,
    URL,
    Person,
    case,
    check_answer,
    check_call,
    check_equal,
    run_cases,
    weather,
)
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

PLACE: dict[str, Any] = {"model": CHAT, "api_base": URL, "api_key": "none", "max_retries": 0, "timeout": 120}
CHATS: dict[str, Any] = PLACE | GREEDY | {"is_chat_model": True, "is_function_calling_model": True}
MODEL = OpenAILike(**CHATS)
MESSAGES = [ChatMessage(role="user", content=QUESTION)]
TOOL = FunctionTool.from_defaults(weather)


@case("plain")
def plain() -> None:
    check_answer(MODEL.chat(MESSAGES).message.content)
    check_answer(MODEL.complete(QUESTION).text)


@case("plain, asynchronous")
async def plain_async() -> None:
    check_answer((await OpenAILike(**CHATS).achat(MESSAGES)).message.content)


@case("streamed")
def streamed() -> None:
    pieces = list(MODEL.stream_chat(MESSAGES))
    check_answer("".join(piece.delta or "" for piece in pieces))
    check_answer(pieces[-1].message.content)


@case("text completion, plain and streamed")
def text_completion() -> None:
    model = OpenAILike(**PLACE, **GREEDY, is_chat_model=False)
    text = model.complete("The sea is").text
    check_equal("".join(piece.delta or "" for piece in model.stream_complete("The sea is")), text)


def called(model: Any, **rest: Any) -> None:
    """A call must be the same whole and streamed."""
    ask = {"user_msg": QUESTION, "tool_required": True, "allow_parallel_tool_calls": False, **rest}
    (call,) = model.get_tool_calls_from_response(model.chat_with_tools([TOOL], **ask))
    check_call(call.tool_name, call.tool_kwargs)
    *_, last = model.stream_chat_with_tools([TOOL], **ask)
    (built,) = model.get_tool_calls_from_response(last)
    check_equal((built.tool_name, built.tool_kwargs), (call.tool_name, call.tool_kwargs))


@case("tool, plain and streamed")
def tool() -> None:
    called(MODEL)


@case("strict tool, plain and streamed")
def strict_tool() -> None:
    called(MODEL, strict=True)


@case("JSON schema, plain and streamed")
def schema() -> None:
    for forms in (False, True):  # by a tool, by response_format
        model = OpenAILike(**CHATS, should_use_structured_outputs=forms)
        asked = PromptTemplate(QUESTION)
        check_equal(type(model.structured_predict(Person, asked)), Person)
        *_, last = model.stream_structured_predict(Person, asked)
        check_equal((last.name == "", last.age == -1), (False, False))


@case("responses, plain and streamed")
def responses() -> None:
    from llama_index.llms.openai_like import OpenAILikeResponses

    ask: dict[str, Any] = PLACE | {"temperature": 0.0, "max_output_tokens": TOKENS, "is_chat_model": True}
    model = OpenAILikeResponses(**ask, is_function_calling_model=True)
    check_answer(model.chat(MESSAGES).message.content)
    check_answer("".join(piece.delta or "" for piece in model.stream_chat(MESSAGES)))
    called(model)


run_cases()
