"""Fields of other servers: what asks for what is done anyway is taken, what can be honoured is, the rest is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.generate.letters import LETTERS, letters, recurrent_letters
from tests.serve.servers import WEATHER, Address, ask, running
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.serve.bodies import decode_body
from volumetric.serve.fields.chat_request import ChatRequest
from volumetric.serve.fields.completion_request import CompletionRequest
from volumetric.serve.fields.foreign_fields import TABLE, table
from volumetric.serve.fields.response_request import ResponseRequest
from volumetric.serve.problem import RequestError
from volumetric.serve.tools.request_tools import tools_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "server.md"
MESSAGES = [{"role": "user", "content": "ab"}]
NEUTRAL: list[dict[str, Any]] = [
    {"store": True},
    {"store": False},
    {"truncation": "auto"},
    {"max_tool_calls": 3},
    {"functions": [], "function_call": "auto"},
    {"echo": False, "add_special_tokens": False, "skip_special_tokens": True, "spaces_between_special_tokens": True},
    {"use_beam_search": False, "length_penalty": 1.0, "bad_words": [], "return_token_ids": False, "detokenize": True},
    {"cache_prompt": True, "n_probs": 0, "mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "typical_p": 1.0},
    {"xtc_probability": 0.0, "xtc_threshold": 0.1, "dry_multiplier": 0, "dry_base": 1.75, "dynatemp_range": 0},
    {"top_n_sigma": -1, "min_keep": 0, "id_slot": -1, "n_keep": 0, "t_max_predict_ms": 0, "reasoning_format": "auto"},
    {"keep_alive": "5m", "options": {}, "ttl": 300},
    {"request_id": "a", "user": "b", "metadata": {"c": "d"}},
    {"min_tokens": 0, "allowed_token_ids": [], "include_stop_str_in_output": False, "timings_per_token": False},
    {"best_of": 1},
]


def body(**fields: Any) -> bytes:
    return json.dumps({"messages": MESSAGES} | fields).encode()


@pytest.mark.parametrize("fields", NEUTRAL)
def test_what_is_done_anyway_is_taken(fields: dict[str, Any]):
    assert decode_body(body(**fields), ChatRequest).messages[0].content == "ab"


@pytest.mark.parametrize(
    ("fields", "name", "why"),
    [
        ({"echo": True}, "echo", "never includes the conversation; allowed: false"),
        ({"cache_prompt": False}, "cache_prompt", "cache_salt"),
        ({"n_probs": 5}, "n_probs", "logprobs"),
        ({"mirostat": 2}, "mirostat", "only temperature"),
        ({"typical_p": 0.9}, "typical_p", "only temperature"),
        ({"typical_p": True}, "typical_p", "True is refused"),
        ({"skip_special_tokens": False}, "skip_special_tokens", "never part of the text; allowed: true"),
        ({"bad_words": ["a"]}, "bad_words", "logit_bias"),
        ({"web_search_options": {}}, "web_search_options", "does not search the web"),
        ({"truncation": "middle"}, "truncation", "nothing is truncated"),
        ({"functions": [{"name": "f"}]}, "functions", "called tools now"),
        ({"think": False}, "think", "chat_template_kwargs"),
        ({"samplers": ["top_k"]}, "samplers", "order is fixed"),
        ({"min_token": 1}, "min_token", "did you mean 'min_tokens'"),
        ({"prompt_truncate_len": 1}, "prompt_truncate_len", "does not support it"),
        ({"max_thinking_tokens": 1}, "max_thinking_tokens", "does not support it"),
    ],
)
def test_what_is_not_done_is_refused_with_the_reason(fields: dict[str, Any], name: str, why: str):
    with pytest.raises(RequestError, match=why) as caught:
        decode_body(body(**fields), ChatRequest)
    assert (caught.value.param, caught.value.status) == (name, 400)


def test_a_lenient_server_takes_all_of_them():
    assert decode_body(body(echo=True, mirostat=2), ChatRequest, lenient=True).messages


def test_the_table_is_sound_and_in_the_document():
    names = [name for row in TABLE for name in row.names]
    assert len(names) == len(set(names))
    for kind in (ChatRequest, ResponseRequest):
        assert not set(names) & set(kind.__struct_fields__)
    assert table() in DOCUMENT.read_text(encoding="utf-8"), "run: make docs"


def test_responses_need_no_wishes_about_reasoning():
    asked = decode_body(b'{"input": "a"}', ResponseRequest)
    asked.check()
    assert (asked.reasoning, asked.include) == (None, [])


def test_responses_drop_what_they_never_tell():
    asked = decode_body(
        json.dumps({"input": "a", "include": ["reasoning.encrypted_content"], "store": True, "truncation": "auto",
                    "max_tool_calls": 1, "reasoning": {"summary": "auto"}}).encode(),
        ResponseRequest,
    )  # fmt: skip
    asked.check()
    assert asked.tops is None
    asked.include = ["message.output_text.logprobs", "reasoning.encrypted_content"]
    asked.check()
    assert asked.tops == 0


@pytest.mark.parametrize(
    ("form", "field", "value"),
    [
        ({"json": {"type": "object"}}, "guided_json", {"type": "object"}),
        ({"json": '{"type": "array"}'}, "guided_json", {"type": "array"}),
        ({"json_object": True}, "guided_json", {"type": "object"}),
        ({"regex": "a+"}, "guided_regex", "a+"),
        ({"choice": ["a", "b"]}, "guided_choice", ["a", "b"]),
        ({"grammar": 'start: "a"'}, "grammar", 'start: "a"'),
    ],
)
def test_structured_outputs_are_forms(form: dict[str, Any], field: str, value: Any):
    assert getattr(decode_body(body(structured_outputs=form), ChatRequest), field) == value
    assert decode_body(body(json_schema={"type": "object"}), ChatRequest).guided_json == {"type": "object"}


@pytest.mark.parametrize("form", [{}, {"json": "{"}, {"json": "1"}, {"regex": "a", "choice": ["b"]}, {"tag": 1}])
def test_structured_outputs_that_are_no_form_are_refused(form: dict[str, Any]):
    with pytest.raises(RequestError, match="structured_outputs"):
        decode_body(body(structured_outputs=form), ChatRequest)


def test_a_schema_may_stand_beside_its_type():
    for kind in ("json_object", "json_schema"):
        asked = decode_body(body(response_format={"type": kind, "schema": {"type": "object"}}), ChatRequest)
        assert asked.response_format is not None
        assert asked.response_format.json_schema is not None
        assert asked.response_format.json_schema.schema == {"type": "object"}
    with pytest.raises(RequestError, match="requires a JSON type"):
        decode_body(body(response_format={"type": "text", "schema": {}}), ChatRequest)


def choice(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def test_some_tools_may_be_allowed():
    other = {"type": "function", "function": {"name": "clock"}}
    asked = tools_of([WEATHER, other], choice("required", "clock"), parallel=True)
    assert asked is not None
    assert [tool.name for tool in asked.tools] == ["clock"]
    assert len(asked.declarations) == 2
    assert (asked.required, asked.parallel) == (True, True)
    for wrong in (choice("auto", "rain"), choice("none", "clock"), choice("auto"), {"type": "allowed_tools"}):
        with pytest.raises(RequestError) as caught:
            tools_of([WEATHER, other], wrong, parallel=True)
        assert caught.value.param == "tool_choice"
    with pytest.raises(RequestError, match="requires tools"):
        tools_of(None, choice("auto", "clock"), parallel=True)


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    models = {"letters": letters(), "random": recurrent_letters(ReferenceDevice())}
    with running(models) as address:
        yield address


@pytest.fixture(scope="module")
def client(server: Address) -> Iterator[openai.OpenAI]:
    with server.client() as client:
        yield client


def text(client: openai.OpenAI, prompt: str = "ab", **fields: Any) -> tuple[str, str]:
    answer = client.completions.create(model="letters", prompt=prompt, extra_body={"temperature": 0} | fields)
    return answer.choices[0].text, answer.choices[0].finish_reason


@pytest.mark.thorough
def test_texts_have_the_tokens_that_they_may_have(client):
    assert text(client) == ("cdefgh", "stop")
    longer, _ = text(client, min_tokens=8, max_tokens=20)
    assert len(longer) >= 8
    assert text(client, allowed_token_ids=[LETTERS.index("c"), LETTERS.index("d")], max_tokens=3)[0][:2] == "cd"
    said, reason = text(client, allowed_token_ids=[LETTERS.index("a")], max_tokens=3)
    assert (said, reason) == ("aaa", "length")
    with pytest.raises(openai.BadRequestError, match="the model has 9 tokens") as caught:
        text(client, allowed_token_ids=[99])
    assert caught.value.param == "allowed_token_ids"
    with pytest.raises(openai.BadRequestError, match="more than max_tokens"):
        text(client, min_tokens=3, max_tokens=2)


@pytest.mark.thorough
def test_stop_texts_may_be_shown(client):
    assert text(client, stop=["ef"]) == ("cd", "stop")
    assert text(client, stop=["ef"], include_stop_str_in_output=True) == ("cdef", "stop")
    assert text(client, stop=["ef", "e"], include_stop_str_in_output=True) == ("cde", "stop")


def test_several_texts_are_not_ranked(client):
    assert len(client.completions.create(model="letters", prompt="a", n=2, best_of=2).choices) == 2
    for kind in ({"n": 1}, {}):
        with pytest.raises(openai.BadRequestError, match="does not rank"):
            client.completions.create(model="letters", prompt="a", best_of=3, **kind)


def test_pieces_tell_what_they_cost_so_far(client):
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    stream = client.chat.completions.create(
        model="letters", messages=MESSAGES, stream=True, stream_options=options, extra_body={"timings_per_token": True}
    )
    *pieces, last = list(stream)
    counts = [piece.usage.completion_tokens for piece in pieces if piece.choices]
    assert counts == sorted(counts)
    assert all(piece.usage.prompt_tokens == 2 for piece in pieces)
    assert counts[-1] == last.usage.completion_tokens == 7
    timings = [piece.model_extra["timings"] for piece in pieces]
    assert [one["predicted_n"] for one in timings] == counts
    assert last.choices == []


def test_a_prompt_may_come_without_special_tokens(server):
    for value in (True, False):
        status, told = ask(
            server, "/v1/completions", json.dumps({"prompt": "ab", "add_special_tokens": value}).encode()
        )
        assert (status, told["usage"]["prompt_tokens"]) == (200, 2)
    assert "add_special_tokens" in CompletionRequest.__struct_fields__
