"""Channels of gpt-oss, and reasoning between special tokens: read, enforced, and through the client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.serve.renamed import allows, renamed
from tests.serve.servers import running
from volumetric.generate.grammar import Grammars
from volumetric.generate.token_events import Generation
from volumetric.serve.answer_grammar import calls_grammar
from volumetric.serve.harmony import HarmonyFormat, HarmonyReader, harmony_of
from volumetric.serve.output_parser import OutputFormat
from volumetric.serve.reasoning import ReasoningFormat, reasoning_format_of
from volumetric.serve.tools.call_form_families import HERMES
from volumetric.serve.tools.request_tools import RequestTools, Tool

MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>", "<|call|>")
# The template of gpt-oss has these texts; this one ends as it does.
TEMPLATE = "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}{{ m.thinking }}<|end|>{% endfor %}"
TEMPLATE += (
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}{# <|channel|> tools tool_calls message.thinking #}"
)
SCHEMA = {
    "type": "object",
    "properties": {"town": {"type": "string", "maxLength": 10}},
    "required": ["town"],
    "additionalProperties": False,
}
TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
THOUGHT = "<|channel|>analysis<|message|>1 < 2? <|<|end|><|start|>assistant"
ALOUD = "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant"
CALL = '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"town": "Rome"}'
FINAL = "<|channel|>final<|message|>It is < warm."
GIVEN = '{"town": "Rome"}'


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize(
    ("text", "thought", "said", "arguments"),
    [
        (THOUGHT + FINAL, "1 < 2? <|", "It is < warm.", ""),
        (THOUGHT + FINAL + "<|return|>", "1 < 2? <|", "It is < warm.", ""),
        (THOUGHT + ALOUD + CALL + "<|call|>", "1 < 2? <|", "I will look.", GIVEN),
        (THOUGHT + " to=functions.weather<|channel|>commentary json<|message|>" + GIVEN, "1 < 2? <|", "", GIVEN),
        ("<|channel|>analysis to=weather code<|message|>" + GIVEN, "", "", GIVEN),
        (THOUGHT[:42], "1 < 2? <|<|e", "", ""),
        (THOUGHT + "<|channel|>fin", "1 < 2? <|", "", ""),
        ('{"plain": "<|"}', "", '{"plain": "<|"}', ""),
    ],
)
def test_channels_are_read_alike_in_pieces_of_any_size(size: int, text: str, thought: str, said: str, arguments: str):
    reader = HarmonyReader()
    parts = [*(reader.push(text[at : at + size]) for at in range(0, len(text), size)), reader.end()]
    assert "".join(part.content for part in parts) == said
    assert "".join(part.reasoning for part in parts) == thought
    pieces = [piece for part in parts for piece in part.call_deltas]
    assert "".join(piece.arguments for piece in pieces) == arguments
    assert [piece.name for piece in pieces if piece.id] == (["weather"] if arguments else [])


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with running({"oss": renamed(*MARKS, template=TEMPLATE)}) as address, address.client() as client:
        yield client


@pytest.mark.thorough
def test_answers_keep_to_channels():
    model = renamed(*MARKS)
    tokenizer = model.tokenizer
    assert tokenizer is not None
    channels = harmony_of(TEMPLATE, tokenizer.token_id)
    assert channels is not None
    assert channels.marks == {mark: tokenizer.token_id(mark) for mark in MARKS}
    assert channels.ends == [channels.marks["<|call|>"]]
    assert harmony_of("{{ messages }}", tokenizer.token_id) is None
    assert harmony_of(TEMPLATE, {}.get) is None
    grammars = Grammars(model)
    for required in (False, True):
        asked = RequestTools(tools=[Tool("weather", SCHEMA)], declarations=[], required=required, parallel=True)
        grammar = channels.grammar(asked)
        for before in ("", THOUGHT, THOUGHT + ALOUD):
            assert allows(model, grammars, grammar, before + CALL)
            assert allows(model, grammars, grammar, before + FINAL) != required
        for other in (CALL.replace("weather", "rain"), CALL.replace("town", "city"), "plain", CALL[:-1]):
            assert not allows(model, grammars, grammar, other)
    model.close()


def test_reasoning_in_channels_is_counted():
    tokens = ["<|channel|>", "analysis", "<|message|>", "so", " so", "<|end|>", "<|start|>", "assistant"]
    tokens += ["<|channel|>", "final", "<|message|>", "yes"]
    stats: Any = None
    answer = Generation(text="".join(tokens), token_ids=tuple(range(12)), finish_reason="stop", stats=stats, seed=None)
    form = OutputFormat(channels=HarmonyFormat({}))
    assert form.reasoning_tokens(answer, tokens.__getitem__) == 5
    assert form.parse(answer.text)[:2] == ("so so", "yes")
    assert OutputFormat(channels=HarmonyFormat({}), merged=True).parse(answer.text)[:2] == ("", "so soyes")
    assert OutputFormat(channels=HarmonyFormat({}), show_reasoning=False).parse(answer.text)[:2] == ("", "yes")


@pytest.mark.thorough
def test_the_client_gets_calls_by_channels(client: openai.OpenAI):
    ask: Any = {"model": "oss", "messages": [{"role": "user", "content": "Rome?"}], "tools": [TOOL]}
    ask |= {"tool_choice": "required", "temperature": 1.0, "seed": 5, "max_tokens": 400}
    answer = client.chat.completions.create(**ask)
    calls: Any = answer.choices[0].message.tool_calls
    (call,) = calls
    assert (call.function.name, answer.choices[0].finish_reason) == ("weather", "tool_calls")
    assert len(json.loads(call.function.arguments)["town"]) <= 10
    deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**ask, stream=True)]
    told = [piece.function for delta in deltas for piece in delta.tool_calls or () if piece.function is not None]
    assert "".join(piece.arguments or "" for piece in told) == call.function.arguments
    thought = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    assert thought == getattr(answer.choices[0].message, "reasoning_content", "")
    messages = [
        *ask["messages"],
        answer.choices[0].message,
        {"role": "tool", "tool_call_id": call.id, "content": "dry"},
    ]
    again = client.chat.completions.create(model="oss", messages=messages, max_tokens=2)
    assert again.usage is not None
    assert again.usage.prompt_tokens > 10


@pytest.mark.thorough
def test_forms_are_held_to_in_the_final_channel(client: openai.OpenAI):
    form: Any = {"type": "json_schema", "json_schema": {"name": "t", "schema": SCHEMA}}
    messages: Any = [{"role": "user", "content": "Rome?"}]
    answer = client.chat.completions.create(model="oss", messages=messages, response_format=form, max_tokens=60)
    assert set(json.loads(answer.choices[0].message.content or "")) == {"town"}
    count = client.post("/tokenize", cast_to=object, body={"messages": messages})
    assert isinstance(count, dict)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == count["count"] + 3  # the header of the channel


@pytest.mark.thorough
def test_reasoning_between_special_tokens_may_come_before_calls():
    model = renamed("[THINK]", "[/THINK]")
    tokenizer = model.tokenizer
    assert tokenizer is not None
    found = reasoning_format_of("{# [THINK] [/THINK] #}", "a", tokenizer.token_id)
    assert found is not None
    assert found == ReasoningFormat("[THINK]", "[/THINK]", marks=found.marks)
    assert found.marks == {mark: tokenizer.token_id(mark) for mark in ("[THINK]", "[/THINK]")}
    assert OutputFormat(thinking=found).special_tokens == set(found.marks.values())
    asked = RequestTools(tools=[Tool("weather", SCHEMA)], declarations=[], required=False, parallel=True)
    grammars, call = Grammars(model), HERMES.write_calls([("weather", {"town": "Rome"})])
    for text, good in (
        (call, True),
        (f"[THINK]Hm.[/THINK]{call}", True),
        ("[THINK]Hm.[/THINK]No.", True),
        ("No.", True),
        ("[THINK]Hm.", False),
        (f"[THINK]Hm.[/THINK]{call.replace('Rome', 'Rome and further')}", False),
    ):
        assert allows(model, grammars, calls_grammar(asked, HERMES, found), text) == good
    inside = reasoning_format_of("{# [THINK] #}", "a[THINK]", tokenizer.token_id)
    assert allows(model, grammars, calls_grammar(asked, HERMES, inside), f"Hm.[/THINK]{call}")
    model.close()


@pytest.mark.thorough
def test_the_client_gets_reasoning_between_special_tokens():
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{# [THINK] [/THINK] #}[THINK]"
    ask: Any = {"model": "m", "messages": [{"role": "user", "content": "Why?"}], "max_tokens": 5}
    with running({"m": renamed("[THINK]", "[/THINK]", template=template)}) as address, address.client() as client:
        answer = client.chat.completions.create(**ask | {"max_tokens": 1}, logit_bias={"8": 100})
        message = answer.choices[0].message
        assert (message.content, getattr(message, "reasoning_content", None)) == ("", None)
        answer = client.chat.completions.create(**ask)
        assert answer.choices[0].message.content == ""
        assert getattr(answer.choices[0].message, "reasoning_content", None)
