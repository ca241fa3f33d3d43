"""OpenAI's client for Python, 2 and 3: chats, its own streams, tools, forms, responses, completions, embeddings."""

from __future__ import annotations

import json
from typing import Any

import openai
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
    Weather,
    case,
    check_answer,
    check_call,
    check_equal,
    check_person,
    check_vectors,
    run_cases,
)

CLIENT = openai.OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120)
RESPONSE: dict[str, Any] = {"model": CHAT, "input": QUESTION, "temperature": 0.0, "max_output_tokens": TOKENS}
RESPONSE_TOOL: Any = {"type": "function", "strict": True, **FUNCTION}


def text_of(stream: Any) -> str:
    """Join the pieces of a chat's stream."""
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


@case("plain")
def plain() -> None:
    answer = CLIENT.chat.completions.create(**ASK)
    check_answer(answer.choices[0].message.content)
    check_equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)


@case("plain, asynchronous")
async def plain_async() -> None:
    async with openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120) as client:
        check_answer((await client.chat.completions.create(**ASK)).choices[0].message.content)


@case("streamed")
def streamed() -> None:
    check_answer(text_of(CLIENT.chat.completions.create(**ASK, stream=True)))


@case("streamed with usage")
def streamed_usage() -> None:
    *chunks, last = CLIENT.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True})
    check_answer(text_of(chunks))
    check_equal(last.choices, [])
    check_equal(last.usage.total_tokens, last.usage.prompt_tokens + last.usage.completion_tokens)


@case(".stream()")
def stream_helper() -> None:
    with CLIENT.chat.completions.stream(**ASK) as stream:
        said = "".join(event.delta for event in stream if event.type == "content.delta")
        check_answer(stream.get_final_completion().choices[0].message.content)
    check_answer(said)


@case(".stream(), asynchronous")
async def stream_helper_async() -> None:
    async with (
        openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120) as client,
        client.chat.completions.stream(**ASK) as stream,
    ):
        check_answer((await stream.get_final_completion()).choices[0].message.content)


@case(".stream() of two answers with log-probabilities")
def stream_helper_choices() -> None:
    ask = ASK | {"n": 2, "seed": 1, "temperature": 1.0, "logprobs": True, "top_logprobs": 2}
    whole = CLIENT.chat.completions.create(**ask)
    with CLIENT.chat.completions.stream(**ask) as stream:
        built = stream.until_done().current_completion_snapshot
    for one, other in zip(whole.choices, built.choices, strict=True):
        check_equal(other.message.content, one.message.content)
        check_equal([token.token for token in other.logprobs.content], [token.token for token in one.logprobs.content])


def called(tool: dict[str, Any], **rest: Any) -> None:
    """A call must be the same whole, in pieces, and in the client's own stream."""
    ask = ASK | CALLED | {"tools": [tool]} | rest
    (call,) = CLIENT.chat.completions.create(**ask).choices[0].message.tool_calls
    check_call(call.function.name, call.function.arguments)
    pieces = [chunk.choices[0].delta.tool_calls or [] for chunk in CLIENT.chat.completions.create(**ask, stream=True)]
    (begun,) = [piece.function.name for parts in pieces for piece in parts if piece.id]
    check_equal(begun, call.function.name)
    check_equal("".join(one.function.arguments or "" for parts in pieces for one in parts), call.function.arguments)
    with CLIENT.chat.completions.stream(**ask) as stream:
        events = [event.type for event in stream]
        (built,) = stream.get_final_completion().choices[0].message.tool_calls
    check_equal((built.function.name, built.function.arguments), (call.function.name, call.function.arguments))
    check_equal(events.count("tool_calls.function.arguments.done"), 1)


@case("tool, plain and streamed")
def tool() -> None:
    called(TOOL)


@case("tool that may be called, plain and streamed")
def free_tool() -> None:
    ask = ASK | {"tools": [TOOL]}
    message = CLIENT.chat.completions.create(**ask).choices[0].message
    with CLIENT.chat.completions.stream(**ask) as stream:
        built = stream.until_done().current_completion_snapshot.choices[0].message
    check_equal(built.content or None, message.content)
    check_equal(*([one.function.arguments for one in told.tool_calls or ()] for told in (message, built)))


@case("named tool, plain and streamed")
def named_tool() -> None:
    called(TOOL, tool_choice={"type": "function", "function": {"name": "weather"}})


@case("strict tool, plain and streamed")
def strict_tool() -> None:
    called(STRICT)


@case("strict tool of a pydantic model, parsed")
def parsed_tool() -> None:
    ask = ASK | CALLED | {"tools": [openai.pydantic_function_tool(Weather, name="weather")]}
    (call,) = CLIENT.chat.completions.parse(**ask).choices[0].message.tool_calls
    with CLIENT.chat.completions.stream(**ask) as stream:
        (built,) = stream.get_final_completion().choices[0].message.tool_calls
    for one in (call, built):
        check_equal(type(one.function.parsed_arguments), Weather)


@case("result of a tool")
def tool_result() -> None:
    message = CLIENT.chat.completions.create(**ASK | CALLED | {"tools": [TOOL]}).choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
    ask = ASK | {"messages": [*MESSAGES, message, result], "tools": [TOOL], "tool_choice": "none"}
    answer = CLIENT.chat.completions.create(**ask).choices[0].message.content
    check_equal(text_of(CLIENT.chat.completions.create(**ask, stream=True)), answer)


@case("JSON schema, plain and streamed")
def schema() -> None:
    ask = ASK | {"response_format": FORM}
    text = CLIENT.chat.completions.create(**ask).choices[0].message.content
    check_person(text)
    check_equal(text_of(CLIENT.chat.completions.create(**ask, stream=True)), text)


@case("JSON schema of a pydantic model, parsed")
def parsed_schema() -> None:
    ask = ASK | {"response_format": Person}
    check_equal(type(CLIENT.chat.completions.parse(**ask).choices[0].message.parsed), Person)
    with CLIENT.chat.completions.stream(**ask) as stream:
        check_equal(type(stream.get_final_completion().choices[0].message.parsed), Person)


@case("any JSON")
def any_json() -> None:
    ask = ASK | {"response_format": {"type": "json_object"}}
    ask["messages"] = [{"role": "user", "content": 'Write only {"a": 1}'}]
    check_equal(type(json.loads(CLIENT.chat.completions.create(**ask).choices[0].message.content)), dict)


@case("responses, plain and streamed")
def responses() -> None:
    check_answer(CLIENT.responses.create(**RESPONSE).output_text)
    events = list(CLIENT.responses.create(**RESPONSE, stream=True))
    check_answer("".join(event.delta for event in events if event.type == "response.output_text.delta"))
    check_equal(events[-1].type in ("response.completed", "response.incomplete"), True)
    with CLIENT.responses.stream(**RESPONSE) as stream:
        check_answer(stream.until_done().get_final_response().output_text)


@case("responses: strict tool, plain and streamed")
def responses_tool() -> None:
    ask = RESPONSE | CALLED | {"tools": [RESPONSE_TOOL]}
    (call,) = CLIENT.responses.create(**ask).output
    check_call(call.name, call.arguments)
    with CLIENT.responses.stream(**ask) as stream:
        (built,) = stream.until_done().get_final_response().output
    check_equal((built.name, built.arguments), (call.name, call.arguments))
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    ask |= {"input": [*MESSAGES, call.to_dict(), result], "tool_choice": "none"}
    check_equal(bool(CLIENT.responses.create(**ask).output_text), True)


@case("responses: JSON schema, plain and streamed")
def responses_schema() -> None:
    check_equal(type(CLIENT.responses.parse(**RESPONSE, text_format=Person).output_parsed), Person)
    with CLIENT.responses.stream(**RESPONSE, text_format=Person) as stream:
        check_equal(type(stream.until_done().get_final_response().output_parsed), Person)


@case("text completion, plain and streamed")
def text_completion() -> None:
    ask = {"model": CHAT, "prompt": "The sea is", **GREEDY}
    text = CLIENT.completions.create(**ask).choices[0].text
    check_equal("".join(piece.choices[0].text for piece in CLIENT.completions.create(**ask, stream=True)), text)


@case("embeddings")
def embeddings() -> None:
    for rest in ({}, {"encoding_format": "float"}):
        answer = CLIENT.embeddings.create(model=ENCODER, input=TEXTS, **rest)
        check_vectors([one.embedding for one in answer.data])


@case("models")
def models() -> None:
    check_equal([model.id for model in CLIENT.models.list()], [CHAT, ENCODER])


@case("errors")
def errors() -> None:
    for wrong, kind in (
        ({"model": "words"}, openai.NotFoundError),
        ({"temperature": -1}, openai.BadRequestError),
        ({"messages": [{"role": "user", "content": "a word " * 10_000}]}, openai.BadRequestError),
    ):
        try:
            CLIENT.chat.completions.create(**ASK | wrong)
        except kind:
            continue
        raise AssertionError(f"no {kind.__name__} for {wrong}")


run_cases()
