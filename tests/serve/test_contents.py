"""What messages hold is text on every way into a conversation, and the last message goes on where it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.generate.letters import loaded_letters
from tests.loaders.test_chat_contents import BEGINNINGS, CHATML, SPOOF, START, STOP, byte_level
from tests.serve.servers import WEATHER, Address, ask, running
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.generate import Model
from volumetric.loaders import ChatTemplate
from volumetric.loaders.generation_config import GenerationDefaults
from volumetric.run.device import RunOptions

CALL, CALLED = "<tool_call>", "</tool_call>"
CALLS: list[Any] = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": SPOOF})}}]


def talker() -> Model:
    """Return a model of bytes and control tokens, which says "A" and nothing else."""
    tokenizer = byte_level(START, STOP, CALL, CALLED)
    size = tokenizer.vocab_size
    table = np.zeros((size, size), np.float32)
    table[:, tokenizer.token_id("A")] = 9
    ends = GenerationDefaults(eos_ids=(tokenizer.token_id(STOP) or 0,))
    loaded = loaded_letters(table, context_length=4096, generation=ends)
    template = ChatTemplate({"default": CHATML}, {}, "test")
    loaded = replace(loaded, tokenizer=tokenizer, chat_template=template)
    return Model(loaded, ReferenceDevice(), RunOptions(context=4096))


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running({"talker": talker()}) as address:
        yield address


def tokens(server: Address, **asked: Any) -> list[str]:
    status, told = ask(server, "/tokenize", json.dumps(asked | {"return_token_strs": True}).encode())
    assert status == 200, told
    return told["token_strs"]


def controls(found: list[str]) -> list[str]:
    return [token for token in found if token in (START, STOP, CALL, CALLED)]


def prompt(server: Address, messages: list[dict[str, Any]], **asked: Any) -> dict[str, Any]:
    body = {"messages": messages, "max_tokens": 1, "temperature": 0} | asked
    status, told = ask(server, "/v1/chat/completions", json.dumps(body).encode())
    assert status == 200, told
    return told


@pytest.mark.thorough
def test_messages_are_text_and_prompts_are_whole(server):
    messages = [{"role": "user", "content": SPOOF}]
    assert controls(tokens(server, messages=messages)) == [START, STOP, START]
    assert controls(tokens(server, messages=messages, parse_special=True)) == [START, STOP, START, STOP, STOP, START]
    assert controls(tokens(server, prompt=SPOOF)) == [STOP, START, STOP]
    assert controls(tokens(server, prompt=SPOOF, parse_special=False)) == []
    counted = len(tokens(server, messages=messages))
    assert prompt(server, messages)["usage"]["prompt_tokens"] == counted


@pytest.mark.thorough
def test_a_server_may_be_told_to_parse_control_tokens():
    messages = [{"role": "user", "content": SPOOF}]
    with running({"talker": talker()}, parse_special=True) as server:
        assert controls(tokens(server, messages=messages)) == [START, STOP, START, STOP, STOP, START]
        assert controls(tokens(server, messages=messages, parse_special=False)) == [START, STOP, START]


@pytest.mark.thorough
def test_words_of_the_server_keep_their_control_tokens(server):
    """The template knows of no tools: the server tells of them, and writes earlier calls, as the model would."""
    model = server.server.serving.models["talker"].model
    seen: list[list[int]] = []
    submit = server.server.serving.models["talker"].engine.submit
    engine: Any = server.server.serving.models["talker"].engine
    engine.submit = lambda jobs, **turn: seen.append(list(jobs[0].prompt)) or submit(jobs, **turn)
    try:
        messages = [
            {"role": "user", "content": CALL},
            {"role": "assistant", "content": CALL, "tool_calls": CALLS},
            {"role": "tool", "content": CALLED + SPOOF, "tool_call_id": "a"},
        ]
        tool = WEATHER | {"function": WEATHER["function"] | {"description": SPOOF + CALL}}
        prompt(server, messages, tools=[tool], tool_choice="none")
        prompt(server, messages, tools=[tool])
    finally:
        engine.submit = submit
    alone, told = ([model.tokenizer.token(id) for id in ids] for ids in seen)
    turn = [START, STOP]
    assert controls(alone) == [*turn, START, CALL, CALLED, STOP, *turn, START]
    assert controls(told) == [START, CALL, CALLED, STOP, *controls(alone)]


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_the_last_message_goes_on_where_it_ends(server, beginning: str):
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": beginning}]
    told = prompt(server, messages, continue_final_message=True)
    whole = f"{START}user\nHi{STOP}\n{START}assistant\n"
    plain = len(tokens(server, prompt=whole)) + len(beginning.encode())
    assert told["usage"]["prompt_tokens"] == plain
    assert told["choices"][0]["message"]["content"] == "A"


def test_a_message_with_calls_has_ended(server):
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "a", "tool_calls": CALLS}]
    body = {"messages": messages, "continue_final_message": True}
    status, told = ask(server, "/v1/chat/completions", json.dumps(body).encode())
    assert (status, told["error"]["param"]) == (400, "continue_final_message")


@pytest.mark.thorough
def test_errors_of_templates_tell_no_paths(server):
    long = [{"role": "user", "content": "a" * 2_050_000}] * 4
    with running({"talker": talker()}, max_body=2**24) as address:
        for path in ("/tokenize", "/v1/chat/completions"):
            status, told = ask(address, path, json.dumps({"messages": long}).encode())
            assert status == 400
            assert told["error"]["message"].startswith("the chat template writes more than 8000000 characters")
