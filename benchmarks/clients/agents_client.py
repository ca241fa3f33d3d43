"""openai-agents: runs over chats and over responses, whole and streamed; functions that it calls, structured output."""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from cases import (
    CALLS,
    CHAT,
    QUESTION,
    TOKENS,
    URL,
    Person,
    case,
    check_answer,
    check_equal,
    check_function_called,
    run_cases,
    weather,
)
from openai import AsyncOpenAI

set_tracing_disabled(True)
KINDS = {"": OpenAIChatCompletionsModel, "responses: ": OpenAIResponsesModel}


def agent(kind: str, settings: dict[str, Any], **rest: Any) -> Any:
    """Return an agent; its client belongs to the event loop of one case."""
    client = AsyncOpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120)
    chosen = ModelSettings(temperature=0.0, max_tokens=TOKENS, **settings)
    return Agent(name="a", model=KINDS[kind](model=CHAT, openai_client=client), model_settings=chosen, **rest)


async def both(kind: str, settings: dict[str, Any], **rest: Any) -> tuple[Any, Any, list[Any]]:
    """Return the final output of a run, that of a streamed one, and the raw events of that."""
    whole = (await Runner.run(agent(kind, settings, **rest), QUESTION)).final_output
    stream = Runner.run_streamed(agent(kind, settings, **rest), QUESTION)
    events = [event.data async for event in stream.stream_events() if event.type == "raw_response_event"]
    return whole, stream.final_output, events


def add(kind: str) -> None:
    """Add the cases of an interface."""

    @case(f"{kind}plain and streamed")
    async def plain() -> None:
        whole, built, events = await both(kind, {})
        check_answer(whole)
        check_answer(built)
        check_answer("".join(event.delta for event in events if event.type == "response.output_text.delta"))

    async def called(strict: bool) -> None:
        CALLS.clear()
        tool = function_tool(weather, strict_mode=strict)
        asked = {"tool_choice": "weather", "parallel_tool_calls": False}
        client = agent(kind, asked, tools=[tool], tool_use_behavior="stop_on_first_tool")
        check_equal((await Runner.run(client, QUESTION)).final_output, "sunny")
        check_function_called()
        client = agent(kind, asked, tools=[tool], tool_use_behavior="stop_on_first_tool")
        stream = Runner.run_streamed(client, QUESTION)
        async for _ in stream.stream_events():
            pass
        check_equal(stream.final_output, "sunny")
        check_function_called()

    @case(f"{kind}tool, plain and streamed")
    async def tool() -> None:
        await called(False)

    @case(f"{kind}strict tool, plain and streamed")
    async def strict_tool() -> None:
        await called(True)

    @case(f"{kind}result of a tool")
    async def result() -> None:
        asked = {"tool_choice": "weather", "parallel_tool_calls": False}
        client = agent(kind, asked, tools=[function_tool(weather)], tool_use_behavior="stop_on_first_tool")
        first = (await Runner.run(client, QUESTION)).to_input_list()
        answer = await Runner.run(agent(kind, {}), [*first, {"role": "user", "content": "And now?"}])
        check_equal(type(answer.final_output), str)

    @case(f"{kind}JSON schema, plain and streamed")
    async def schema() -> None:
        whole, built, _ = await both(kind, {}, output_type=Person)
        check_equal((type(whole), built), (Person, whole))


for kind in KINDS:
    add(kind)

run_cases()
