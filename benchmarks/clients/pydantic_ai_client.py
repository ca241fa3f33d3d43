"""pydantic-ai: agents over chats and over responses, whole and streamed; tools, native and tool output."""

from __future__ import annotations

from typing import Any

from cases import (
    CALLS,
    CHAT,
    ENCODER,
    GREEDY,
    QUESTION,
    TEXTS,
    URL,
    Person,
    case,
    check_answer,
    check_equal,
    check_function_called,
    check_vectors,
    run_cases,
    weather,
)
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

PROVIDER = OpenAIProvider(base_url=URL, api_key="none")
SETTINGS: Any = GREEDY
MODELS = {"": OpenAIChatModel(CHAT, provider=PROVIDER), "responses: ": OpenAIResponsesModel(CHAT, provider=PROVIDER)}


def agent(model: Any, **rest: Any) -> Any:
    """Return an agent that answers greedily, and asks once."""
    return Agent(model, model_settings=SETTINGS, retries=0, **rest)


def add(kind: str, model: Any) -> None:
    """Add the cases of an interface."""

    @case(f"{kind}plain")
    async def plain() -> None:
        answer = await agent(model).run(QUESTION)
        check_answer(answer.output)

    @case(f"{kind}streamed")
    async def streamed() -> None:
        async with agent(model).run_stream(QUESTION) as stream:
            check_answer("".join([piece async for piece in stream.stream_text(delta=True)]))

    async def output(form: Any) -> None:
        whole = (await agent(model, output_type=form).run(QUESTION)).output
        check_equal(type(whole), Person)
        async with agent(model, output_type=form).run_stream(QUESTION) as stream:
            check_equal(await stream.get_output(), whole)

    @case(f"{kind}tool, plain and streamed")
    async def tool() -> None:
        await output(ToolOutput(Person, strict=False))

    @case(f"{kind}strict tool, plain and streamed")
    async def strict_tool() -> None:
        await output(ToolOutput(Person, strict=True))

    @case(f"{kind}JSON schema, plain and streamed")
    async def schema() -> None:
        await output(NativeOutput(Person, strict=True))

    @case(f"{kind}function called, plain and streamed")
    async def function() -> None:
        CALLS.clear()
        # the function is the output, so that a run ends with its call
        check_equal((await agent(model, output_type=[weather]).run(QUESTION)).output, "sunny")
        check_function_called()
        async with agent(model, output_type=[weather]).run_stream(QUESTION) as stream:
            check_equal(await stream.get_output(), "sunny")

    @case(f"{kind}result of a tool")
    async def result() -> None:
        first = await agent(model, output_type=ToolOutput(Person)).run(QUESTION)
        answer = await agent(model).run("And now?", message_history=first.all_messages())
        check_equal(type(answer.output), str)


for kind, model in MODELS.items():
    add(kind, model)


@case("embeddings")
async def embeddings() -> None:
    from pydantic_ai import Embedder
    from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel

    answer = await Embedder(OpenAIEmbeddingModel(ENCODER, provider=PROVIDER)).embed_documents(TEXTS)
    check_vectors(answer.embeddings)


run_cases()
