"""Calls as Mistral's models write them, behind special tokens; with other special tokens in the place of theirs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.serve.renamed import allows, renamed
from tests.serve.servers import Address, running
from volumetric.generate.grammar import Grammars
from volumetric.serve.tools.call_form import CallForm
from volumetric.serve.tools.call_form_families import MISTRAL, MISTRAL_LIST, form_of
from volumetric.serve.tools.call_reader import CallReader
from volumetric.serve.tools.request_tools import RequestTools, Tool

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}{# tools [TOOL_CALLS] [ARGS] #}"
SCHEMA = {
    "type": "object",
    "properties": {"town": {"type": "string", "maxLength": 10}},
    "required": ["town"],
    "additionalProperties": False,
}
OLD = '[TOOL_CALLS][{"name": "weather", "arguments": {"town": "R]"}}, {"name": "time", "arguments": {}}]'
NEW = '[TOOL_CALLS]weather[ARGS]{"town": "R]"}[TOOL_CALLS]time[ARGS]{}'
# What the templates of these models say of calls.
NEMO = '{%- if tools %}[AVAILABLE_TOOLS]{% endif %}{{- "[TOOL_CALLS][" }}{%- if tool_call.id|length != 9 %}{%- endif %}'
SMALL = "{{- '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}"


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    with running({"smollm2": renamed("[TOOL_CALLS]", "[ARGS]", template=TEMPLATE)}) as address:
        yield address


@pytest.mark.thorough
def test_the_client_gets_calls_behind_special_tokens(address: Address):
    tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
    ask: Any = {"model": "default", "messages": [{"role": "user", "content": "Rome?"}], "temperature": 1.0, "seed": 2}
    ask |= {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 60}
    with address.client() as client:
        answer: Any = client.chat.completions.create(**ask)
        (call,) = answer.choices[0].message.tool_calls
        assert (call.function.name, len(call.id)) == ("weather", 9)
        assert set(json.loads(call.function.arguments)) == {"town"}
        assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == ("tool_calls", None)
        arguments = ""
        chunk: Any
        for chunk in client.chat.completions.create(**ask, stream=True):
            assert not chunk.choices[0].delta.content
            for piece in chunk.choices[0].delta.tool_calls or ():
                arguments += piece.function.arguments or ""
        assert arguments == call.function.arguments


@pytest.mark.thorough
@pytest.mark.parametrize("old", [False, True])
def test_answers_may_hold_calls_of_what_there_is(address: Address, old: bool):
    served = address.server.serving.models["smollm2"]
    form, _ = form_of(NEMO if old else SMALL, served.special_id)
    assert len(form.marks) == (1 if old else 2)
    grammars = Grammars(served.model)

    def allowed(text: str, *, required: bool, parallel: bool = True) -> bool:
        tools = [Tool("weather", SCHEMA), Tool("time", {"type": "object", "additionalProperties": False})]
        asked = RequestTools(tools=tools, declarations=[], required=required, parallel=parallel)
        return allows(served.model, grammars, form.grammar(asked), text)

    calls = OLD if old else NEW
    for required in (False, True):
        assert allowed(calls, required=required)
        assert not allowed(calls, required=required, parallel=False)
        assert not allowed(calls.replace("weather", "rain"), required=required)
        assert not allowed(calls.replace("town", "city"), required=required)
        assert allowed("Let me see.", required=required) != required
        assert allowed(f"Let me see.{calls}", required=required) != required


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize(("form", "text"), [(MISTRAL, NEW), (MISTRAL_LIST, OLD)])
def test_calls_are_read_alike_in_pieces_of_any_size(form: CallForm, text: str, size: int):
    reader, content = CallReader(form), ""
    calls: list[list[str]] = []
    text = f"Let me see [TOOL: {text}"
    for said, pieces in [*(reader.push(text[at : at + size]) for at in range(0, len(text), size)), reader.end()]:
        content += said
        for piece in pieces:
            if piece.id is not None:
                calls.append([piece.name or "", ""])
                assert len(piece.id) == 9
            calls[piece.index][1] += piece.arguments
    assert content == "Let me see [TOOL: "
    assert [(name, json.loads(arguments)) for name, arguments in calls] == [("weather", {"town": "R]"}), ("time", {})]


def test_templates_tell_which_form_they_teach():
    ids = {"[TOOL_CALLS]": 5, "[ARGS]": 32}
    assert form_of(NEMO, ids.get) == (replace(MISTRAL_LIST, marks={"[TOOL_CALLS]": 5}), "template")
    assert form_of(SMALL, ids.get) == (replace(MISTRAL, marks=ids), "instructions")
