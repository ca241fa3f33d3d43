"""litellm: chats, streams that it builds together, tools, forms, responses, text completions, embeddings."""

from __future__ import annotations

import os
from typing import Any

from cases import (
    ASK,
    CALLED,
    CHAT,
    ENCODER,
    FORM,
    FUNCTION,
    GREEDY,
    MESSAGES,
    QUESTION,
    STRICT,
    TEXTS,
    TOKENS,
    TOOL,
    URL,
    Person,
    case,
    check_answer,
    check_call,
    check_equal,
    check_person,
    check_vectors,
    run_cases,
)

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else the import asks the network for prices
import litellm

PLACE: dict[str, Any] = {"api_base": URL, "api_key": "none", "num_retries": 0}
CHATS: dict[str, Any] = ASK | PLACE | {"model": f"openai/{CHAT}"}


def built(ask: dict[str, Any]) -> Any:
    """Return the message that litellm builds of a stream."""
    chunks = list(litellm.completion(**ask, stream=True))
    return litellm.stream_chunk_builder(chunks, messages=MESSAGES).choices[0].message


@case("plain")
def plain() -> None:
    for provider in ("openai", "hosted_vllm"):
        check_answer(litellm.completion(**CHATS | {"model": f"{provider}/{CHAT}"}).choices[0].message.content)


@case("plain, asynchronous")
async def plain_async() -> None:
    check_answer((await litellm.acompletion(**CHATS)).choices[0].message.content)


@case("streamed")
def streamed() -> None:
    check_answer(built(CHATS).content)


@case("streamed, asynchronous")
async def streamed_async() -> None:
    stream = await litellm.acompletion(**CHATS, stream=True)
    check_answer("".join([chunk.choices[0].delta.content or "" async for chunk in stream]))


def called(tool: dict[str, Any]) -> None:
    """A call must be the same whole and streamed."""
    ask = CHATS | CALLED | {"tools": [tool]}
    (call,) = litellm.completion(**ask).choices[0].message.tool_calls
    check_call(call.function.name, call.function.arguments)
    (other,) = built(ask).tool_calls
    check_equal((other.function.name, other.function.arguments), (call.function.name, call.function.arguments))


@case("tool, plain and streamed")
def tool() -> None:
    called(TOOL)


@case("strict tool, plain and streamed")
def strict_tool() -> None:
    called(STRICT)


@case("JSON schema, plain and streamed")
def schema() -> None:
    for form in (FORM, Person):
        text = litellm.completion(**CHATS, response_format=form).choices[0].message.content
        check_person(text)
        check_equal(built(CHATS | {"response_format": form}).content, text)


RESPONSE: dict[str, Any] = PLACE | {"model": f"openai/{CHAT}", "input": QUESTION, "temperature": 0.0}
RESPONSE["max_output_tokens"] = TOKENS


@case("responses, plain and streamed")
def responses() -> None:
    check_answer(litellm.responses(**RESPONSE).output[-1].content[0].text)
    events = list(litellm.responses(**RESPONSE, stream=True))
    check_answer("".join(event.delta for event in events if event.type == "response.output_text.delta"))


@case("responses: strict tool, plain and streamed")
def responses_tool() -> None:
    ask = RESPONSE | CALLED | {"tools": [{"type": "function", "strict": True, **FUNCTION}]}
    (call,) = litellm.responses(**ask).output
    check_call(call.name, call.arguments)
    events = list(litellm.responses(**ask, stream=True))
    (built,) = events[-1].response.output
    check_equal((built.name, built.arguments), (call.name, call.arguments))
    # litellm 1.83 asks for the whole answer where it does not know the model, and tells it as a stream without these
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    check_equal("".join(deltas), call.arguments if deltas else "")


@case("text completion")
def text_completion() -> None:
    ask = PLACE | GREEDY | {"model": f"text-completion-openai/{CHAT}", "prompt": "The sea is"}
    text = litellm.text_completion(**ask).choices[0].text
    pieces = [piece.choices[0].text or "" for piece in litellm.text_completion(**ask, stream=True)]
    check_equal("".join(pieces), text)


@case("embeddings")
def embeddings() -> None:
    answer = litellm.embedding(f"openai/{ENCODER}", TEXTS, **PLACE)
    check_vectors([one["embedding"] for one in answer.data])


@case("errors")
def errors() -> None:
    try:
        litellm.completion(**CHATS | {"model": "openai/words"})
    except litellm.NotFoundError:
        return
    raise AssertionError("no NotFoundError")


run_cases()
