"""langchain-openai: chats, streams, tools, structured answers by each of its methods, responses, embeddings."""

from __future__ import annotations

from typing import Any

from cases import (
    CALLED,
    CHAT,
    ENCODER,
    GREEDY,
    QUESTION,
    STRICT,
    TEXTS,
    TOOL,
    URL,
    Person,
    Weather,
    case,
    check_answer,
    check_call,
    check_equal,
    check_vectors,
    run_cases,
)
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

PLACE: dict[str, Any] = {"base_url": URL, "api_key": "none", "max_retries": 0}
MODEL = ChatOpenAI(model=CHAT, **PLACE, **GREEDY)
RESPONSES = ChatOpenAI(model=CHAT, use_responses_api=True, **PLACE, **GREEDY)


def joined(stream: Any) -> Any:
    """Return the message that the pieces of a stream add up to."""
    whole: Any = None
    for piece in stream:
        whole = piece if whole is None else whole + piece
    return whole


@case("plain")
def plain() -> None:
    answer = MODEL.invoke(QUESTION)
    check_answer(answer.content)
    usage = answer.usage_metadata
    check_equal(usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"])


@case("streamed")
def streamed() -> None:
    check_answer(joined(MODEL.stream(QUESTION)).content)


@case("asynchronous, plain and streamed")
async def asynchronous() -> None:  # one case: models share connections, which belong to one event loop
    check_answer((await MODEL.ainvoke(QUESTION)).content)
    events = [event async for event in MODEL.astream_events(QUESTION, version="v2")]
    pieces = [event["data"]["chunk"].content for event in events if event["event"] == "on_chat_model_stream"]
    check_answer("".join(pieces))


def called(model: Any, tool: Any) -> None:
    """A call must be the same whole and streamed."""
    bound = model.bind_tools([tool], **CALLED)
    (call,) = bound.invoke(QUESTION).tool_calls
    check_call(call["name"], call["args"])
    built = joined(bound.stream(QUESTION))
    check_equal([(one["name"], one["args"]) for one in built.tool_calls], [(call["name"], call["args"])])
    check_equal(built.invalid_tool_calls, [])


@case("tool, plain and streamed")
def tool() -> None:
    called(MODEL, TOOL)


@case("strict tool, plain and streamed")
def strict_tool() -> None:
    called(MODEL, STRICT)


@case("tool of a pydantic model")
def pydantic_tool() -> None:
    (call,) = MODEL.bind_tools([Weather], tool_choice="weather", strict=True).invoke(QUESTION).tool_calls
    check_call(call["name"], call["args"])


@case("JSON schema, plain and streamed")
def schema() -> None:
    for strict in (True, None):
        model = MODEL.with_structured_output(Person, method="json_schema", strict=strict)
        check_equal(type(model.invoke(QUESTION)), Person)
        *_, last = model.stream(QUESTION)
        check_equal(type(last), Person)


@case("JSON schema by a tool, plain and streamed")
def schema_by_tool() -> None:
    model = MODEL.with_structured_output(Person, method="function_calling")
    check_equal(type(model.invoke(QUESTION)), Person)
    *_, last = model.stream(QUESTION)
    check_equal(type(last), Person)


@case("responses, plain and streamed")
def responses() -> None:
    check_answer(RESPONSES.invoke(QUESTION).text)
    check_answer(joined(RESPONSES.stream(QUESTION)).text)


@case("responses: tool, plain and streamed")
def responses_tool() -> None:
    called(RESPONSES, TOOL)


@case("responses: strict tool, plain and streamed")
def responses_strict_tool() -> None:
    called(RESPONSES, STRICT)


@case("responses: JSON schema, plain and streamed")
def responses_schema() -> None:
    model = RESPONSES.with_structured_output(Person, method="json_schema")
    check_equal(type(model.invoke(QUESTION)), Person)
    *_, last = model.stream(QUESTION)
    check_equal(type(last), Person)


@case("embeddings")
def embeddings() -> None:
    encoder = OpenAIEmbeddings(model=ENCODER, check_embedding_ctx_length=False, **PLACE)
    check_vectors(encoder.embed_documents(TEXTS))


run_cases()
